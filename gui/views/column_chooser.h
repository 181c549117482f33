// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

class QWidget;

namespace foretrain::gui {

class Session;

/// Asks which columns the table shows: a list with a search box.
void choose_columns(Session& session, QWidget* parent);

} // namespace foretrain::gui
