// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/model/environment.h"

#include <system_error>

#include "core/base/json.h"

namespace foretrain::gui {

std::filesystem::path own_calibration(const Environment& environment, const std::string& device) {
  if (environment.user_data.empty() || device.empty() || device.find('/') != std::string::npos) return {};
  return environment.user_data / "calibrations" / (device + ".json");
}

Result<Calibration> calibration_of(const Environment& environment, const DeviceSpec& device) {
  const std::filesystem::path own = own_calibration(environment, device.name);
  std::error_code ignored;
  if (own.empty() || !std::filesystem::exists(own, ignored)) return load_calibration(environment.data.root, device);
  FORETRAIN_TRY(const Json json, read_json_file(own.string()));
  return calibration_from(json, own.string());
}

} // namespace foretrain::gui
