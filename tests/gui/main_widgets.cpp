// SPDX-License-Identifier: GPL-3.0-or-later
#include <gtest/gtest.h>

#include <QApplication>

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (qEnvironmentVariableIsEmpty("QT_QPA_PLATFORM")) qputenv("QT_QPA_PLATFORM", "offscreen");
  QApplication::setStyle(QStringLiteral("fusion"));
  QApplication app(argc, argv);
  QApplication::setApplicationName(QStringLiteral("foretrain-gui-test"));
  return RUN_ALL_TESTS();
}
