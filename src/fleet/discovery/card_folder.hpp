#pragma once

#include <sys/stat.h>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "fleet/card.hpp"
#include "fleet/discovery/namespace_filter.hpp"
#include "net/reactor.hpp"

namespace fairlead::fleet {

/// Which folder and how it is read.
struct CardFolderOptions {
  std::string path;        ///< The folder; it need not be there yet.
  NamespaceFilter filter;  ///< Cards of other namespaces are left out silently.
  /// Further files are left out: not those that are known as cards, and of others the first in the
  /// order of names count.
  std::size_t max_files = 10000;
  /// A file that cannot be read as a card is complained about after this time only: it may still
  /// be being written.
  net::Duration grace = std::chrono::seconds(1);
};

/// The cards in a folder: one per regular file `NAME.json`; names that begin with a dot are
/// ignored. Blocks while it reads; any thread, one at a time.
///
/// A file that has become unreadable or malformed keeps its last valid card until it is removed.
/// A folder that has gone keeps all cards but those of files that were seen to be deleted: the
/// place may be unreachable while the workers are not. Of files with the same card key the first in
/// the order of names counts.
class CardFolder {
 public:
  /// Looks at nothing yet.
  explicit CardFolder(CardFolderOptions options);

  /// What a scan has found.
  struct Outcome {
    bool changed = false;                ///< `cards()` may differ from before.
    std::optional<net::Duration> again;  ///< Scan again after so long, whatever happens.
  };

  /// Looks at every file and reads those that look changed; all of them when `reread` is set.
  /// `deleted` are names that are known to have been removed.
  Outcome scan(net::TimePoint now, bool reread, const std::set<std::string>& deleted = {});
  /// All valid cards, in the order of file names.
  std::vector<Card> cards() const;
  /// False while the folder cannot be listed.
  bool present() const { return absence_.empty(); }

 private:
  struct Entry {
    struct stat stat{};         // when it was last read
    std::uint64_t content = 0;  // digest of the text last read
    bool read = false;          // there is such a text
    std::optional<Card> card;   // the last valid one
    std::string problem;        // of the text last read; empty when it is valid
    net::TimePoint problem_since;
    bool reported = false;     // the problem was logged
    std::string duplicate_of;  // the file whose card counts instead
  };

  Result<std::set<std::string>> list(int folder_fd);
  bool look(int folder_fd, const std::string& name, bool reread, net::TimePoint now,
            Outcome& outcome);
  void take_text(const std::string& name, const struct stat& stat, std::string_view text,
                 net::TimePoint now, Outcome& outcome);
  void take_failure(const std::string& name, std::string reason, net::TimePoint now,
                    Outcome& outcome);
  void note_problem(Entry& entry, std::string reason, net::TimePoint now);
  void report(const std::string& name, Entry& entry, net::TimePoint now, Outcome& outcome);
  void forget(const std::string& name, Outcome& outcome);
  void find_duplicates();
  void note_absence(std::string reason);

  CardFolderOptions options_;
  std::map<std::string, Entry> entries_;
  std::string absence_ = "not looked at yet";  // why the folder cannot be listed
  bool ever_present_ = false;
  bool too_many_ = false;
};

}  // namespace fairlead::fleet
