// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/app/export.h"

#include <filesystem>

#include <QFileInfo>
#include <QImage>
#include <QPageLayout>
#include <QPdfWriter>
#include <QSvgGenerator>

#include <fmt/format.h>

#include "core/base/json.h"
#include "core/base/text.h"
#include "gui/views/view.h"

namespace foretrain::gui {
namespace {

constexpr int kDotsPerInch = 96;

Result<void> cannot_write(const std::string& file) {
  return fail_environment(file, "cannot be written", "is there such a folder, and room on the disk?");
}

/// Commas outside quotes become tabs.
std::string as_tsv(const std::string& csv) {
  std::string tsv;
  bool quoted = false;
  for (const char c : csv) {
    if (c == '"') quoted = !quoted;
    tsv += c == ',' && !quoted ? '\t' : c;
  }
  return tsv;
}

Result<void> write_png(View& view, const std::string& file, QSize size, double scale) {
  QImage image((QSizeF(size) * scale).toSize(), QImage::Format_ARGB32_Premultiplied);
  image.setDevicePixelRatio(scale);
  image.fill(view.theme().base);
  view.paint_to(image, size);
  if (!image.save(QString::fromStdString(file), "PNG")) return cannot_write(file);
  return {};
}

Result<void> write_svg(View& view, const std::string& file, QSize size) {
  QSvgGenerator svg;
  svg.setFileName(QString::fromStdString(file));
  svg.setSize(size);
  svg.setViewBox(QRect(QPoint(0, 0), size));
  svg.setResolution(kDotsPerInch);
  svg.setTitle(view.windowTitle());
  view.paint_to(svg, size);
  return QFileInfo(QString::fromStdString(file)).size() > 0 ? Result<void>() : cannot_write(file);
}

Result<void> write_pdf(View& view, const std::string& file, QSize size) {
  QPdfWriter pdf(QString::fromStdString(file));
  pdf.setResolution(kDotsPerInch);
  pdf.setPageSize(QPageSize(QSizeF(size) * 72.0 / kDotsPerInch, QPageSize::Point, QString(), QPageSize::ExactMatch));
  pdf.setPageMargins(QMarginsF(0, 0, 0, 0));
  pdf.setTitle(view.windowTitle());
  view.paint_to(pdf, size);
  return QFileInfo(QString::fromStdString(file)).size() > 0 ? Result<void>() : cannot_write(file);
}

} // namespace

const std::vector<std::string>& export_kinds() {
  static const std::vector<std::string> kinds = {"png", "svg", "pdf", "csv", "tsv"};
  return kinds;
}

std::string with_suffix(const std::string& file, const std::string& suggestion, const std::string& chosen_kind) {
  const std::size_t star = chosen_kind.find("*.");
  if (file.empty() || star == std::string::npos) return file;
  const std::string wanted = chosen_kind.substr(star + 1, chosen_kind.find_first_of(" )", star) - star - 1);
  std::filesystem::path path(file);
  const std::filesystem::path suffix = path.extension();
  if (suffix.empty() || suffix == std::filesystem::path(suggestion).extension()) path.replace_extension(wanted);
  return path.string();
}

Result<void> export_view(View& view, const std::string& file, QSize size, double scale) {
  const std::string kind = QFileInfo(QString::fromStdString(file)).suffix().toLower().toStdString();
  if (kind == "png") return write_png(view, file, size, scale);
  if (kind == "svg") return write_svg(view, file, size);
  if (kind == "pdf") return write_pdf(view, file, size);
  view.flush();
  if (kind == "csv") return write_text_file(file, view.csv());
  if (kind == "tsv") return write_text_file(file, as_tsv(view.csv()));
  return fail(file, fmt::format("'{}' is no kind of file to export", kind), join(export_kinds(), ", "));
}

} // namespace foretrain::gui
