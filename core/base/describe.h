#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <vector>

#include <fmt/format.h>

#include "core/base/enum_names.h"
#include "core/base/json.h"
#include "core/base/result.h"
#include "core/base/text.h"
#include "core/base/units.h"

/// One description per struct: reading, writing, unknown-key errors, the reference page and the JSON schema come from
/// it. Included by the files that read and write, never by the headers that declare the structs.
namespace foretrain {

/// One member of a described struct. Build with `required` or `optional`.
template <class Owner, class T> struct Member {
  const char* key;
  T Owner::*pointer;
  const char* doc; ///< one sentence: meaning, unit, range
  bool is_required;
  double low = -std::numeric_limits<double>::infinity(); ///< inclusive bounds, numbers only
  double high = std::numeric_limits<double>::infinity();
  const char* kinds = nullptr; ///< " a b ": the choices (value of "kind") that take this key; null = all

  /// Inclusive range of a number (of a quantity: in its base unit).
  [[nodiscard]] constexpr Member between(double lowest, double highest) const {
    Member copy = *this;
    copy.low = lowest;
    copy.high = highest;
    return copy;
  }
  [[nodiscard]] constexpr Member at_least(double lowest) const { return between(lowest, high); }
  /// This key belongs to these choices only: space-separated kinds.
  [[nodiscard]] constexpr Member only_for(const char* names) const {
    Member copy = *this;
    copy.kinds = names;
    return copy;
  }
};

template <class Owner, class T>
constexpr Member<Owner, T> required(const char* key, T Owner::*pointer, const char* doc) {
  return Member<Owner, T>{key, pointer, doc, true};
}
template <class Owner, class T>
constexpr Member<Owner, T> optional(const char* key, T Owner::*pointer, const char* doc) {
  return Member<Owner, T>{key, pointer, doc, false};
}

/// Specialise with `static constexpr const char* name`, `static constexpr const char* doc` and
/// `static constexpr auto members = std::tuple{…}`. Optional: `static Result<void> check(const T&, const Where&)`, and
/// for a choice whose `kind` is text `static std::vector<std::string> kinds()`: the ids it may have.
template <class T> struct Described;

/// Where a value stands: "plan.json" + "/layout/tp".
struct Where {
  std::string file;
  std::string pointer;
  [[nodiscard]] Where at(std::string_view key) const { return {file, pointer + "/" + std::string(key)}; }
  [[nodiscard]] std::string text() const { return pointer.empty() ? file : file + ":" + pointer; }
};

struct Bounds {
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
};

namespace detail {

[[nodiscard]] std::string show(const Json& value); ///< the value as JSON, shortened to 60 characters

template <class T> struct IsOptional : std::false_type {};
template <class T> struct IsOptional<std::optional<T>> : std::true_type {};
template <class T> struct IsVector : std::false_type {};
template <class T> struct IsVector<std::vector<T>> : std::true_type {};
template <class T> struct IsMap : std::false_type {};
template <class T> struct IsMap<std::map<std::string, T>> : std::true_type {};

template <class T> struct IsArray : std::false_type {};
template <class T, std::size_t N> struct IsArray<std::array<T, N>> : std::true_type {};

template <class T>
concept HasDescription = requires {
  Described<T>::members;
};
template <class T>
concept HasCheck = requires(const T& value, const Where& where) {
  Described<T>::check(value, where);
};
template <class T>
concept HasKind = requires(const T& value) {
  value.kind;
};
template <class T>
concept HasKindList = requires {
  Described<T>::kinds();
};

[[nodiscard]] bool listed(const char* kinds, std::string_view kind);
[[nodiscard]] Result<double> read_number(const Json& json, const Where& where, Bounds bounds);
[[nodiscard]] Result<std::int64_t> read_integer(const Json& json, const Where& where, Bounds bounds, std::int64_t low,
                                                std::int64_t high);
template <class Q>
[[nodiscard]] Result<Q> read_quantity(const Json& json, const Where& where, Bounds bounds,
                                      std::optional<Q> (*parse)(std::string_view), const char* example) {
  if (!json.is_string())
    return fail(where.text(), show(json) + " has no unit",
                std::string("write it as text with its unit, for example ") + example);
  const std::optional<Q> value = parse(json.get_ref<const std::string&>());
  if (!value)
    return fail(where.text(), show(json) + " is not a number with a unit of this quantity",
                std::string("for example ") + example);
  const auto number = static_cast<double>(value->value);
  if (number < bounds.low || number > bounds.high)
    return fail(where.text(), show(json) + " is out of range",
                fmt::format("between {:g} and {:g} in its base unit", bounds.low, bounds.high));
  return *value;
}

} // namespace detail

template <class T> [[nodiscard]] Result<T> read_value(const Json& json, const Where& where, Bounds bounds = {});
template <class T> [[nodiscard]] Json write_value(const T& value);
template <class T> [[nodiscard]] Json schema_of(Bounds bounds = {});

/// Reads a described struct. Every key must be known; a key of another choice is named as such.
template <class T> [[nodiscard]] Result<T> read_struct(const Json& json, const Where& where) {
  T value{};
  // A choice may be written as its kind alone: "schedule": "1f1b".
  Json wrapped;
  const Json* source = &json;
  if constexpr (detail::HasKind<T>) {
    if (json.is_string()) {
      wrapped = Json{{"kind", json}};
      source = &wrapped;
    }
  }
  if (!source->is_object())
    return fail(where.text(), fmt::format("{} is not an object", detail::show(json)),
                std::string("expected ") + Described<T>::name);
  std::vector<std::string> known;
  std::apply([&](const auto&... member) { (known.emplace_back(member.key), ...); }, Described<T>::members);
  for (const auto& [key, unused] : source->items()) {
    bool found = false;
    for (const std::string& name : known) found = found || name == key;
    if (!found)
      return fail(where.at(key).text(), fmt::format("unknown key '{}' in {}", key, Described<T>::name),
                  hint_for(key, known));
  }
  std::optional<Error> error;
  std::string kind;
  const auto read_member = [&](const auto& member) {
    if (error) return;
    using Field = std::remove_cvref_t<decltype(value.*(member.pointer))>;
    const auto found = source->find(member.key);
    if (found == source->end() || (found->is_null() && detail::IsOptional<Field>::value)) {
      if (member.is_required) {
        Error missing;
        missing.message = fmt::format("key '{}' is missing", member.key);
        missing.where = where.text();
        missing.hint = member.doc;
        error = missing;
      }
      return;
    }
    if (member.kinds && !detail::listed(member.kinds, kind)) {
      Error foreign;
      foreign.message = fmt::format("key '{}' belongs to kind {}, not to '{}'", member.key, member.kinds, kind);
      foreign.where = where.at(member.key).text();
      error = foreign;
      return;
    }
    auto read = read_value<Field>(*found, where.at(member.key), Bounds{member.low, member.high});
    if (!read) {
      error = std::move(read).error();
      return;
    }
    value.*(member.pointer) = std::move(*read);
    if constexpr (detail::HasKind<T>) {
      if (std::string_view(member.key) == "kind")
        kind = write_value(value.*(member.pointer)).template get<std::string>();
    }
    if constexpr (detail::HasKindList<T>) {
      if (std::string_view(member.key) == "kind") {
        const std::vector<std::string> kinds = Described<T>::kinds();
        bool found_kind = false;
        for (const std::string& name : kinds) found_kind = found_kind || name == kind;
        if (!found_kind)
          error = Error{Error::Kind::input, fmt::format("'{}' is unknown", kind), where.at("kind").text(),
                        hint_for(kind, kinds)};
      }
    }
  };
  // `kind` is first in every choice, so that the keys after it can be judged.
  if constexpr (detail::HasKind<T>) kind = write_value(value.kind).template get<std::string>();
  std::apply([&](const auto&... member) { (read_member(member), ...); }, Described<T>::members);
  if (error) return tl::unexpected<Error>(std::move(*error));
  if constexpr (detail::HasCheck<T>) {
    const Result<void> checked = Described<T>::check(value, where);
    if (!checked) return tl::unexpected<Error>(checked.error());
  }
  return value;
}

template <class T> Result<T> read_value(const Json& json, const Where& where, Bounds bounds) {
  if constexpr (detail::IsOptional<T>::value) {
    if (json.is_null()) return T{};
    FORETRAIN_TRY(auto inner, read_value<typename T::value_type>(json, where, bounds));
    return T(std::move(inner));
  } else if constexpr (detail::IsVector<T>::value) {
    if (!json.is_array()) return fail(where.text(), detail::show(json) + " is not a list");
    T list;
    list.reserve(json.size());
    for (std::size_t i = 0; i < json.size(); ++i) {
      FORETRAIN_TRY(auto element, read_value<typename T::value_type>(json[i], where.at(std::to_string(i)), bounds));
      list.push_back(std::move(element));
    }
    return list;
  } else if constexpr (detail::IsArray<T>::value) {
    T array{};
    if (!json.is_array() || json.size() != array.size())
      return fail(where.text(), fmt::format("{} is not a list of {}", detail::show(json), array.size()));
    for (std::size_t i = 0; i < array.size(); ++i) {
      FORETRAIN_TRY(array[i], read_value<typename T::value_type>(json[i], where.at(std::to_string(i)), bounds));
    }
    return array;
  } else if constexpr (detail::IsMap<T>::value) {
    if (!json.is_object()) return fail(where.text(), detail::show(json) + " is not an object");
    T map;
    for (const auto& [key, element] : json.items()) {
      FORETRAIN_TRY(auto read, read_value<typename T::mapped_type>(element, where.at(key), bounds));
      map.emplace(key, std::move(read));
    }
    return map;
  } else if constexpr (std::is_same_v<T, bool>) {
    if (!json.is_boolean()) return fail(where.text(), detail::show(json) + " is not true or false");
    return json.get<bool>();
  } else if constexpr (std::is_integral_v<T>) {
    FORETRAIN_TRY(const std::int64_t number, detail::read_integer(json, where, bounds, std::numeric_limits<T>::min(),
                                                                  std::numeric_limits<T>::max()));
    return static_cast<T>(number);
  } else if constexpr (std::is_floating_point_v<T>) {
    return detail::read_number(json, where, bounds);
  } else if constexpr (std::is_same_v<T, std::string>) {
    if (!json.is_string()) return fail(where.text(), detail::show(json) + " is not text");
    return json.get<std::string>();
  } else if constexpr (std::is_same_v<T, Bytes>) {
    return detail::read_quantity<Bytes>(json, where, bounds, parse_bytes, "\"80 GiB\"");
  } else if constexpr (std::is_same_v<T, BytesPerSecond>) {
    return detail::read_quantity<BytesPerSecond>(json, where, bounds, parse_rate, "\"50 GB/s\"");
  } else if constexpr (std::is_same_v<T, Seconds>) {
    return detail::read_quantity<Seconds>(json, where, bounds, parse_seconds, "\"2 us\"");
  } else if constexpr (std::is_same_v<T, FlopPerSecond>) {
    return detail::read_quantity<FlopPerSecond>(json, where, bounds, parse_flop_rate, "\"989 TFLOP/s\"");
  } else if constexpr (std::is_enum_v<T>) {
    if (!json.is_string()) return fail(where.text(), detail::show(json) + " is not text", hint_for("", enum_ids<T>()));
    const auto& text = json.get_ref<const std::string&>();
    const std::optional<T> found = enum_from<T>(text);
    if constexpr (requires { EnumNames<T>::refused; })
      for (const auto& [name, reason] : EnumNames<T>::refused)
        if (text == name)
          return fail(where.text(), fmt::format("'{}' is not modelled: {}", text, reason), hint_for("", enum_ids<T>()));
    if (!found) return fail(where.text(), fmt::format("'{}' is unknown", text), hint_for(text, enum_ids<T>()));
    return *found;
  } else {
    static_assert(detail::HasDescription<T>, "describe this type");
    return read_struct<T>(json, where);
  }
}

/// Writes members that differ from their default, and required ones: what is read back is equal.
template <class T> [[nodiscard]] Json write_struct(const T& value) {
  Json json = Json::object();
  const T defaults{};
  std::string kind;
  if constexpr (detail::HasKind<T>) kind = write_value(value.kind).template get<std::string>();
  const auto write_member = [&](const auto& member) {
    if (member.kinds && !detail::listed(member.kinds, kind)) return;
    const bool is_kind = std::string_view(member.key) == "kind";
    if (!member.is_required && !is_kind && value.*(member.pointer) == defaults.*(member.pointer)) return;
    json[member.key] = write_value(value.*(member.pointer));
  };
  std::apply([&](const auto&... member) { (write_member(member), ...); }, Described<T>::members);
  return json;
}

template <class T> Json write_value(const T& value) {
  if constexpr (detail::IsOptional<T>::value) {
    return value ? write_value(*value) : Json(nullptr);
  } else if constexpr (detail::IsVector<T>::value || detail::IsArray<T>::value) {
    Json list = Json::array();
    for (const auto& element : value) list.push_back(write_value(static_cast<typename T::value_type>(element)));
    return list;
  } else if constexpr (detail::IsMap<T>::value) {
    Json object = Json::object();
    for (const auto& [key, element] : value) object[key] = write_value(element);
    return object;
  } else if constexpr (std::is_same_v<T, Bytes>) {
    return Json(format_bytes(value));
  } else if constexpr (std::is_same_v<T, BytesPerSecond>) {
    return Json(format_rate(value));
  } else if constexpr (std::is_same_v<T, Seconds>) {
    return Json(format_seconds(value));
  } else if constexpr (std::is_same_v<T, FlopPerSecond>) {
    return Json(format_flop_rate(value));
  } else if constexpr (std::is_enum_v<T>) {
    return Json(std::string(name_of(value)));
  } else if constexpr (detail::HasDescription<T>) {
    return write_struct(value);
  } else {
    return Json(value);
  }
}

/// JSON Schema (draft 2020-12) of a type.
template <class T> Json schema_of(Bounds bounds) {
  if constexpr (detail::IsOptional<T>::value) {
    return schema_of<typename T::value_type>(bounds);
  } else if constexpr (detail::IsVector<T>::value) {
    return Json{{"type", "array"}, {"items", schema_of<typename T::value_type>(bounds)}};
  } else if constexpr (detail::IsArray<T>::value) {
    return Json{{"type", "array"},
                {"items", schema_of<typename T::value_type>(bounds)},
                {"minItems", std::tuple_size_v<T>},
                {"maxItems", std::tuple_size_v<T>}};
  } else if constexpr (detail::IsMap<T>::value) {
    return Json{{"type", "object"}, {"additionalProperties", schema_of<typename T::mapped_type>(bounds)}};
  } else if constexpr (std::is_same_v<T, bool>) {
    return Json{{"type", "boolean"}};
  } else if constexpr (std::is_arithmetic_v<T>) {
    Json schema{{"type", std::is_integral_v<T> ? "integer" : "number"}};
    if (std::isfinite(bounds.low)) schema["minimum"] = bounds.low;
    if (std::isfinite(bounds.high)) schema["maximum"] = bounds.high;
    return schema;
  } else if constexpr (std::is_same_v<T, std::string>) {
    return Json{{"type", "string"}};
  } else if constexpr (std::is_same_v<T, Bytes>) {
    return Json{{"type", "string"}, {"pattern", "^[0-9.e+-]+ *([kKMGT]i?)?B$"}, {"examples", {"80 GiB"}}};
  } else if constexpr (std::is_same_v<T, BytesPerSecond>) {
    return Json{
        {"type", "string"}, {"pattern", "^[0-9.e+-]+ *[kMGT]?i?[bB]/s$"}, {"examples", {"50 GB/s", "400 Gb/s"}}};
  } else if constexpr (std::is_same_v<T, Seconds>) {
    return Json{{"type", "string"}, {"pattern", "^[0-9.e+-]+ *(s|ms|us|ns|min)$"}, {"examples", {"2 us"}}};
  } else if constexpr (std::is_same_v<T, FlopPerSecond>) {
    return Json{{"type", "string"}, {"pattern", "^[0-9.e+-]+ *[GTP]?FLOP/s$"}, {"examples", {"989 TFLOP/s"}}};
  } else if constexpr (std::is_enum_v<T>) {
    return Json{{"enum", enum_ids<T>()}};
  } else {
    Json properties = Json::object();
    Json needed = Json::array();
    const auto add = [&](const auto& member) {
      using Field = std::remove_cvref_t<decltype(std::declval<T>().*(member.pointer))>;
      Json schema = schema_of<Field>(Bounds{member.low, member.high});
      std::string doc = member.doc;
      if (member.kinds) doc += std::string(" Only for kind: ") + member.kinds + ".";
      // An object says itself what it is; everything else is described where it stands.
      if (!schema.contains("title")) schema["description"] = doc;
      if constexpr (!detail::IsOptional<Field>::value && !detail::HasDescription<Field>)
        if (!member.is_required) schema["default"] = write_value(T{}.*(member.pointer));
      properties[member.key] = std::move(schema);
      if (member.is_required) needed.push_back(member.key);
    };
    std::apply([&](const auto&... member) { (add(member), ...); }, Described<T>::members);
    Json schema{{"title", Described<T>::name},
                {"description", Described<T>::doc},
                {"type", "object"},
                {"properties", properties},
                {"additionalProperties", false}};
    if (!needed.empty()) schema["required"] = needed;
    if constexpr (detail::HasKindList<T>) schema["properties"]["kind"]["enum"] = Described<T>::kinds();
    if constexpr (detail::HasKind<T>) {
      // The kind alone may stand for the object.
      Json alone{{"type", "string"}};
      if (schema["properties"]["kind"].contains("enum")) alone["enum"] = schema["properties"]["kind"]["enum"];
      return Json{{"anyOf", Json::array({alone, schema})}};
    }
    return schema;
  }
}

} // namespace foretrain
