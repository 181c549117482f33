// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/base/json.h"
#include "core/spec/presets.h"

namespace foretrain::gui {

/// One line of the study editor, made from the schema of studies: a new member of a spec shows up by itself.
struct FormField {
  enum class Kind { section, number, whole, flag, text, choice, list };
  Kind kind = Kind::text;
  std::string pointer; ///< JSON pointer in the study: "/job/global_batch"
  std::string key;     ///< "global_batch"
  std::string help;
  std::string range;                ///< "1 … 64", empty: any
  std::vector<std::string> choices; ///< choice, and what a list may hold
  std::string example;              ///< text with a unit
  std::optional<std::string> value; ///< as the user wrote it; absent: inherited
  std::string inherited;            ///< the default, or what a preset gives
  int depth = 0;
};

/// The lines for this document. Models and clusters are presets by name or objects; objects are shown member by member.
[[nodiscard]] std::vector<FormField> study_form(const Json& document, const DataFolder& data);

/// The document with one value set from text, or taken back to its default with empty text. Numbers, flags and lists
/// are read as such; what does not read as one stays text, for the reader of studies to refuse with the place.
[[nodiscard]] Json with_value(Json document, const FormField& field, const std::string& text);

/// A preset cluster written out, so that its tiers and device can be edited.
[[nodiscard]] Json with_cluster_expanded(Json document, const DataFolder& data);

} // namespace foretrain::gui
