#include "planner/validate/plots.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <map>

#include <fmt/format.h>

namespace foretrain::validation {
namespace {

constexpr double kWidth = 760;
constexpr double kLeft = 230; ///< room for names
constexpr double kRight = 20;
constexpr double kRow = 20;
constexpr double kTop = 40;
constexpr double kEnd = 60; // percent; errors further off are drawn at the edge

std::string escaped(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (c == '&')
      result += "&amp;";
    else if (c == '<')
      result += "&lt;";
    else if (c == '>')
      result += "&gt;";
    else
      result += c;
  }
  return result;
}

std::string text_at(double x, double y, const std::string& text, const char* anchor = "start", int size = 11) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" font-size=\"{}\" text-anchor=\"{}\">{}</text>\n", x, y, size,
                     anchor, escaped(text));
}

std::string line(double x1, double y1, double x2, double y2, const char* colour) {
  return fmt::format("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"{}\"/>\n", x1, y1, x2, y2,
                     colour);
}

std::string dot(double x, double y, const char* colour) {
  return fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"2\" fill=\"{}\" fill-opacity=\"0.45\"/>\n", x, y, colour);
}

std::string document(double width, double height, const std::string& title, const std::string& body) {
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" viewBox=\"0 0 {0:.0f} {1:.0f}\" "
      "font-family=\"sans-serif\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n{2}{3}</svg>\n",
      width, height, text_at(12, 22, title, "start", 14), body);
}

constexpr std::array<const char*, 8> kColours = {"#1f77b4", "#d62728", "#2ca02c", "#9467bd",
                                                 "#ff7f0e", "#17becf", "#8c564b", "#7f7f7f"};

Plot predicted_against_measured(const Rows& rows) {
  constexpr double kSize = 560;
  constexpr double kMargin = 60;
  double low = 1e9;
  double high = 1e-9;
  for (const ValidatedRow* row : rows) {
    low = std::min({low, *row->measured_seconds, *row->predicted_seconds});
    high = std::max({high, *row->measured_seconds, *row->predicted_seconds});
  }
  const double from = std::floor(std::log10(low));
  const double to = std::ceil(std::log10(high));
  const auto place = [&](double seconds) { return (std::log10(seconds) - from) / (to - from) * kSize; };
  std::string body;
  for (double decade = from; decade <= to; decade += 1) {
    const double at = (decade - from) / (to - from) * kSize;
    body += line(kMargin + at, kTop, kMargin + at, kTop + kSize, "#e0e0e0");
    body += line(kMargin, kTop + kSize - at, kMargin + kSize, kTop + kSize - at, "#e0e0e0");
    body += text_at(kMargin + at, kTop + kSize + 16, fmt::format("{:g} s", std::pow(10, decade)), "middle");
    body += text_at(kMargin - 6, kTop + kSize - at + 4, fmt::format("{:g} s", std::pow(10, decade)), "end");
  }
  body += line(kMargin, kTop + kSize, kMargin + kSize, kTop, "#404040");
  std::map<std::string, const char*> colours;
  for (const ValidatedRow* row : rows) {
    const auto [entry, fresh] = colours.try_emplace(row->features.device, kColours[colours.size() % kColours.size()]);
    body += dot(kMargin + place(*row->measured_seconds), kTop + kSize - place(*row->predicted_seconds), entry->second);
  }
  double y = kTop + 10;
  for (const auto& [device, colour] : colours) {
    body += dot(kMargin + kSize + 14, y - 4, colour) + text_at(kMargin + kSize + 22, y, device);
    y += 16;
  }
  body += text_at(kMargin + kSize / 2, kTop + kSize + 34, "measured", "middle");
  return {"predicted-measured",
          document(kMargin + kSize + 180, kTop + kSize + 46, "Predicted against measured step time", body)};
}

/// One line per value: every row's error and the mean.
Plot residuals(const Rows& rows, const std::string& name,
               const std::function<std::string(const ValidatedRow&)>& value) {
  std::map<std::string, std::vector<double>> groups;
  for (const ValidatedRow* row : rows) groups[value(*row)].push_back(*time_error_percent(*row));
  const auto place = [](double percent) {
    return kLeft + (std::clamp(percent, -kEnd, kEnd) + kEnd) / (2 * kEnd) * (kWidth - kLeft - kRight);
  };
  const double bottom = kTop + kRow * static_cast<double>(groups.size());
  std::string body;
  for (double percent = -kEnd; percent <= kEnd; percent += 20) {
    body += line(place(percent), kTop, place(percent), bottom, percent == 0 ? "#404040" : "#e0e0e0");
    body += text_at(place(percent), bottom + 14, fmt::format("{:+.0f} %", percent), "middle");
  }
  double y = kTop + kRow / 2;
  for (const auto& [group, errors] : groups) {
    double mean = 0;
    for (const double error : errors) {
      body += dot(place(error), y, kColours[0]);
      mean += error / static_cast<double>(errors.size());
    }
    body += line(place(mean), y - 7, place(mean), y + 7, kColours[1]);
    body += text_at(kLeft - 8, y + 4, fmt::format("{} ({})", group.substr(0, 34), errors.size()), "end");
    y += kRow;
  }
  return {"residuals-" + name, document(kWidth, bottom + 24, "Error of the step time by " + name, body)};
}

Plot regret(const std::vector<RankedGroup>& groups) {
  double most = 1;
  for (const RankedGroup& group : groups) most = std::max(most, group.regret_percent);
  std::string body;
  double y = kTop;
  for (const RankedGroup& group : groups) {
    const double length = group.regret_percent / most * (kWidth - 80);
    body += text_at(12, y + 10, fmt::format("{} ({} rows)", group.name, group.rows), "start", 10);
    body += fmt::format("<rect x=\"12\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"8\" fill=\"{}\"/>\n", y + 14,
                        std::max(1.0, length), kColours[0]);
    body += text_at(18 + std::max(1.0, length), y + 22,
                    fmt::format("{:.1f} %, Spearman {:.2f}", group.regret_percent, group.spearman), "start", 10);
    y += 32;
  }
  return {"regret",
          document(kWidth, y + 10, "Regret: how much slower the predicted best measured than the best", body)};
}

} // namespace

std::vector<Plot> plots_of(const Rows& rows, const std::vector<RankedGroup>& groups) {
  Rows timed;
  for (const ValidatedRow* row : rows)
    if (time_error_percent(*row) && *row->predicted_seconds > 0 && *row->measured_seconds > 0) timed.push_back(row);
  std::vector<Plot> plots;
  if (timed.empty()) return plots;
  plots.push_back(predicted_against_measured(timed));
  const auto number = [](int value) { return fmt::format("{:>6}", value); };
  const std::vector<std::pair<std::string, std::function<std::string(const ValidatedRow&)>>> dimensions = {
      {"source", [](const ValidatedRow& r) { return r.source; }},
      {"framework", [](const ValidatedRow& r) { return r.features.framework; }},
      {"device", [](const ValidatedRow& r) { return r.features.device; }},
      {"precision", [](const ValidatedRow& r) { return r.features.precision; }},
      {"recompute", [](const ValidatedRow& r) { return r.features.recompute; }},
      {"devices", [number](const ValidatedRow& r) { return number(r.features.devices); }},
      {"sequence", [number](const ValidatedRow& r) { return number(r.features.sequence_length); }},
      {"tp", [number](const ValidatedRow& r) { return number(r.features.tp); }},
      {"pp", [number](const ValidatedRow& r) { return number(r.features.pp); }},
      {"cp", [number](const ValidatedRow& r) { return number(r.features.cp); }},
      {"ep", [number](const ValidatedRow& r) { return number(r.features.ep); }},
      {"micro-batch", [number](const ValidatedRow& r) { return number(r.features.micro_batch); }}};
  for (const auto& [name, value] : dimensions) plots.push_back(residuals(timed, name, value));
  if (!groups.empty()) plots.push_back(regret(groups));
  return plots;
}

} // namespace foretrain::validation
