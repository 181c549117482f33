// SPDX-License-Identifier: GPL-3.0-or-later
#include <algorithm>

#include <gtest/gtest.h>

#include "core/spec/io.h"
#include "gui/model/study_form.h"
#include "tests/gui/fixtures.h"

namespace foretrain::gui {
namespace {

FormField field(const Json& document, const std::string& pointer) {
  const auto form = study_form(document, test::environment().data);
  const auto found = std::find_if(form.begin(), form.end(), [&](const FormField& f) {
    return f.pointer == pointer && f.kind != FormField::Kind::section;
  });
  if (found != form.end()) return *found;
  ADD_FAILURE() << "no field " << pointer;
  return {};
}

TEST(StudyForm, ShowsValuesDefaultsRangesAndHelp) {
  const Json document = test::small_document();
  const FormField batch = field(document, "/job/global_batch");
  EXPECT_EQ(batch.value, "32");
  EXPECT_FALSE(batch.help.empty());
  const FormField precision = field(document, "/job/precision");
  EXPECT_FALSE(precision.value);
  EXPECT_EQ(precision.inherited, "bf16");
  EXPECT_NE(std::find(precision.choices.begin(), precision.choices.end(), "fp32"), precision.choices.end());
  EXPECT_EQ(field(document, "/space/tp").value, "1, 2, 4, 8");
  EXPECT_GT(field(document, "/model").choices.size(), 50U);
  EXPECT_EQ(field(document, "/cluster/devices").value, "8");
}

TEST(StudyForm, EverySetValueReadsBack) {
  Json document = test::small_document();
  document = with_value(document, field(document, "/job/global_batch"), "64");
  document = with_value(document, field(document, "/space/tp"), "2 4");
  document = with_value(document, field(document, "/job/precision"), "fp16");
  document = with_value(document, field(document, "/cluster/devices"), "16");
  document = with_value(document, field(document, "/job/optimizer"), "lion");
  EXPECT_EQ(field(document, "/space/overlap_tp").inherited, "no");
  document = with_value(document, field(document, "/space/overlap_tp"), "no, yes");
  const auto study = study_from(document, "study", test::environment().data);
  ASSERT_TRUE(study) << to_string(study.error());
  EXPECT_EQ(study->job.global_batch, 64);
  EXPECT_EQ(study->space.tp, (std::vector<int>{2, 4}));
  EXPECT_EQ(study->job.precision, Precision::fp16);
  EXPECT_EQ(study->space.overlap_tp, (std::vector<bool>{false, true}));
  EXPECT_EQ(device_count(study->cluster), 16);
  EXPECT_EQ(study->job.optimizer.kind, OptimizerKind::lion);
}

TEST(StudyForm, EmptyTextGoesBackToTheDefault) {
  Json document = test::small_document();
  document = with_value(document, field(document, "/space/tp"), "");
  EXPECT_FALSE(document["space"].contains("tp"));
  document = with_value(document, field(document, "/cluster/devices"), "");
  EXPECT_EQ(document["cluster"], Json("dgx-h100"));
}

TEST(StudyForm, WhatIsNoNumberIsRefusedWithItsPlace) {
  const Json document = with_value(test::small_document(), field(test::small_document(), "/job/global_batch"), "many");
  const auto study = study_from(document, "study", test::environment().data);
  ASSERT_FALSE(study);
  EXPECT_NE(study.error().where.find("/job/global_batch"), std::string::npos);
}

TEST(StudyForm, AWrittenOutClusterShowsItsTiers) {
  const Json document = with_cluster_expanded(test::small_document(), test::environment().data);
  const FormField bandwidth = field(document, "/cluster/tiers/0/link/bandwidth");
  EXPECT_TRUE(bandwidth.value);
  EXPECT_TRUE(study_from(document, "study", test::environment().data));
}

} // namespace
} // namespace foretrain::gui
