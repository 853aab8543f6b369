#pragma once

#include <memory>

#include "fleet/discovery/card_folder.hpp"
#include "fleet/discovery/source.hpp"

namespace fairlead::fleet {

/// How a folder of cards is watched.
struct FileSourceOptions {
  CardFolderOptions folder;                                  ///< Which folder.
  net::Duration relist_interval = std::chrono::seconds(30);  ///< All files are read anew.
  net::Duration absent_interval = std::chrono::seconds(1);   ///< Looks for an absent folder.
  net::Duration blind_interval = std::chrono::seconds(2);    ///< Between scans when the system
                                                             ///< has no watch to give.
};

/// Cards from a watched folder; see CardFolder. Changes are noticed by inotify and, where the file
/// system does not report them, by the relisting. Everything that touches files happens on a thread
/// of its own, since a network file system may block; a burst of changes is one report. The first
/// report comes after the first look at the folder, even if there are no cards.
class FileCardSource final : public CardSource {
 public:
  /// Begins with `start`.
  explicit FileCardSource(FileSourceOptions options);
  /// Ends the watch. A thread that is blocked in the file system is left to end by itself.
  ~FileCardSource() override;

  void start(OnCards on_cards) override;

 private:
  class Watch;
  FileSourceOptions options_;
  std::shared_ptr<Watch> watch_;
};

}  // namespace fairlead::fleet
