#include "db/migrations.h"

#include <array>
#include <string>

#include <SQLiteCpp/SQLiteCpp.h>

namespace foretrain {
namespace {

// Specs are JSON text, so that a new member needs no migration; what is searched is a generated column over it. A key
// that the writer leaves out because it has its default is coalesced to that default. Of a prediction, what a ranking
// sorts by is written beside its document: there are 100,000 of them in a study, and parsing each costs more than all
// else that is done with it.
constexpr const char* kVersion1 = R"sql(
CREATE TABLE calibration(
  digest TEXT PRIMARY KEY,
  device TEXT NOT NULL,
  document TEXT NOT NULL CHECK(json_valid(document)),
  created_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%SZ', 'now'))
) WITHOUT ROWID;

CREATE TABLE study(
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  digest TEXT NOT NULL,
  spec TEXT NOT NULL CHECK(json_valid(spec)),
  program_version TEXT NOT NULL,
  created_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%SZ', 'now')),
  complete INTEGER NOT NULL DEFAULT 0,
  elapsed_s REAL,
  enumerated INTEGER NOT NULL DEFAULT 0,
  legal INTEGER NOT NULL DEFAULT 0,
  evaluated INTEGER NOT NULL DEFAULT 0,
  fits INTEGER NOT NULL DEFAULT 0,
  model TEXT AS (json_extract(spec, '$.model.name')),
  cluster TEXT AS (json_extract(spec, '$.cluster.name')),
  sequence_length INTEGER AS (json_extract(spec, '$.job.sequence_length')),
  global_batch INTEGER AS (json_extract(spec, '$.job.global_batch')),
  semantics TEXT AS (coalesce(json_extract(spec, '$.job.semantics'), 'megatron-core')),
  objective TEXT AS (json_extract(spec, '$.objective'))
);
CREATE INDEX study_by_digest ON study(digest);

CREATE TABLE candidate(
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  study INTEGER NOT NULL REFERENCES study(id) ON DELETE CASCADE,
  digest TEXT NOT NULL,
  layout TEXT NOT NULL CHECK(json_valid(layout)),
  pareto INTEGER NOT NULL DEFAULT 0,
  tp INTEGER AS (coalesce(json_extract(layout, '$.tp'), 1)),
  pp INTEGER AS (coalesce(json_extract(layout, '$.pp'), 1)),
  cp INTEGER AS (coalesce(json_extract(layout, '$.cp'), 1)),
  ep INTEGER AS (coalesce(json_extract(layout, '$.ep'), 1)),
  etp INTEGER AS (coalesce(json_extract(layout, '$.etp'), 1)),
  dp INTEGER AS (coalesce(json_extract(layout, '$.dp_shard'), 1) * coalesce(json_extract(layout, '$.dp_replicate'), 1)),
  micro_batch INTEGER AS (coalesce(json_extract(layout, '$.micro_batch'), 1)),
  schedule TEXT AS (coalesce(json_extract(layout, '$.schedule.kind'), '1f1b')),
  UNIQUE(study, digest)
);

CREATE TABLE prediction(
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  candidate INTEGER NOT NULL REFERENCES candidate(id) ON DELETE CASCADE,
  engine TEXT NOT NULL,
  detail INTEGER NOT NULL,
  semantics TEXT NOT NULL,
  calibration TEXT NOT NULL,
  verdict TEXT NOT NULL,
  step_time_s REAL,
  tokens_per_s_per_gpu REAL,
  mfu_percent REAL,
  peak_device_bytes INTEGER NOT NULL,
  document TEXT NOT NULL,
  UNIQUE(candidate, detail, semantics, calibration)
);

CREATE TABLE rejection_count(
  study INTEGER NOT NULL REFERENCES study(id) ON DELETE CASCADE,
  rule TEXT NOT NULL,
  count INTEGER NOT NULL,
  PRIMARY KEY(study, rule)
) WITHOUT ROWID;

CREATE TABLE near_miss(
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  study INTEGER NOT NULL REFERENCES study(id) ON DELETE CASCADE,
  layout TEXT NOT NULL CHECK(json_valid(layout)),
  rejection TEXT NOT NULL CHECK(json_valid(rejection)),
  rule TEXT AS (json_extract(rejection, '$.rule'))
);
CREATE INDEX near_miss_by_study ON near_miss(study);

CREATE TABLE run(
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  digest TEXT NOT NULL,
  plan TEXT NOT NULL CHECK(json_valid(plan)),
  launcher TEXT NOT NULL,
  program_version TEXT NOT NULL,
  created_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%SZ', 'now')),
  status TEXT NOT NULL DEFAULT 'running' CHECK(status IN ('running', 'done', 'failed', 'interrupted')),
  steps INTEGER NOT NULL DEFAULT 0,
  message TEXT NOT NULL DEFAULT '',
  model TEXT AS (json_extract(plan, '$.model.name')),
  cluster TEXT AS (json_extract(plan, '$.cluster.name'))
);
CREATE INDEX run_by_digest ON run(digest);

CREATE TABLE run_prediction(
  run INTEGER NOT NULL REFERENCES run(id) ON DELETE CASCADE,
  engine TEXT NOT NULL,
  semantics TEXT NOT NULL,
  calibration TEXT NOT NULL,
  document TEXT NOT NULL CHECK(json_valid(document)),
  PRIMARY KEY(run, engine, semantics, calibration)
) WITHOUT ROWID;

CREATE TABLE run_op(
  run INTEGER NOT NULL REFERENCES run(id) ON DELETE CASCADE,
  rank INTEGER NOT NULL,
  op INTEGER NOT NULL,
  axis TEXT NOT NULL,
  stage INTEGER NOT NULL,
  samples INTEGER NOT NULL,
  median_s REAL NOT NULL,
  p10_s REAL NOT NULL,
  p90_s REAL NOT NULL,
  PRIMARY KEY(run, rank, op)
) WITHOUT ROWID;

CREATE TABLE measurement(
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  run INTEGER NOT NULL REFERENCES run(id) ON DELETE CASCADE,
  item TEXT NOT NULL,
  rank INTEGER,
  step INTEGER,
  value REAL NOT NULL,
  unit TEXT NOT NULL
);
CREATE INDEX measurement_by_run ON measurement(run, item);

CREATE TRIGGER run_op_is_final BEFORE UPDATE ON run_op
BEGIN SELECT RAISE(ABORT, 'measurements are never overwritten'); END;
CREATE TRIGGER measurement_is_final BEFORE UPDATE ON measurement
BEGIN SELECT RAISE(ABORT, 'measurements are never overwritten'); END;

CREATE TABLE view_state(
  name TEXT PRIMARY KEY,
  document TEXT NOT NULL CHECK(json_valid(document)),
  updated_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%SZ', 'now'))
) WITHOUT ROWID;
)sql";

/// What a run was made on, where its files are, and what was promised of each op.
constexpr const char* kVersion2 = R"sql(
ALTER TABLE run ADD COLUMN folder TEXT NOT NULL DEFAULT '';
ALTER TABLE run ADD COLUMN environment TEXT NOT NULL DEFAULT 'null' CHECK(json_valid(environment));
ALTER TABLE run_op ADD COLUMN name TEXT NOT NULL DEFAULT '';
ALTER TABLE run_op ADD COLUMN predicted_s REAL NOT NULL DEFAULT 0;
)sql";

/// What a table shows of a candidate, so that a hundred thousand are listed without reading their documents.
constexpr const char* kVersion3 = R"sql(
ALTER TABLE candidate ADD COLUMN code BLOB;
ALTER TABLE prediction ADD COLUMN evidence TEXT NOT NULL DEFAULT '';
ALTER TABLE prediction ADD COLUMN fullest_stage INTEGER NOT NULL DEFAULT 0;
UPDATE prediction SET evidence = coalesce(json_extract(document, '$.evidence'), ''),
  fullest_stage = coalesce((SELECT key FROM json_each(document, '$.memory')
    ORDER BY json_extract(value, '$.device_bytes') DESC, key LIMIT 1), 0)
  WHERE json_valid(document);
)sql";

constexpr std::array<Migration, 3> kMigrations = {Migration{1, kVersion1}, Migration{2, kVersion2},
                                                  Migration{3, kVersion3}};

int version_of(SQLite::Database& database) {
  return database.execAndGet("PRAGMA user_version").getInt();
}

} // namespace

std::span<const Migration> migrations() {
  return kMigrations;
}

int newest_version() {
  return kMigrations.back().version;
}

void migrate(SQLite::Database& database, std::span<const Migration> steps) {
  for (const Migration& step : steps) {
    if (version_of(database) >= step.version) continue;
    SQLite::Transaction transaction(database, SQLite::TransactionBehavior::IMMEDIATE);
    // Another program may have taken this step while we waited for the lock.
    if (version_of(database) >= step.version) continue;
    database.exec(step.sql);
    database.exec("PRAGMA application_id = " + std::to_string(kApplicationId));
    database.exec("PRAGMA user_version = " + std::to_string(step.version));
    transaction.commit();
  }
}

} // namespace foretrain
