#include "fleet/discovery/card_folder.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <system_error>
#include <unordered_map>
#include <utility>

#include "base/descriptor.hpp"
#include "base/log.hpp"

namespace fairlead::fleet {
namespace {

constexpr std::string_view kSuffix = ".json";

std::string reason_of(int error) { return std::generic_category().message(error); }

/// Temporary and hidden files begin with a dot.
bool is_card_name(std::string_view name) {
  return name.size() > kSuffix.size() && name.ends_with(kSuffix) && !name.starts_with('.');
}

bool same_version(const struct stat& a, const struct stat& b) {
  const auto same_time = [](const timespec& s, const timespec& t) {
    return s.tv_sec == t.tv_sec && s.tv_nsec == t.tv_nsec;
  };
  return a.st_dev == b.st_dev && a.st_ino == b.st_ino && a.st_size == b.st_size &&
         a.st_mode == b.st_mode && same_time(a.st_mtim, b.st_mtim) &&
         same_time(a.st_ctim, b.st_ctim);
}

/// The text of a file, up to one byte more than a card may have. A failure is its errno.
std::expected<std::string, int> read_text(int fd) {
  std::string text(kMaxCardBytes + 1, '\0');
  std::size_t size = 0;
  while (size < text.size()) {
    const ssize_t got = read(fd, text.data() + size, text.size() - size);
    if (got < 0 && errno == EINTR) {
      continue;
    }
    if (got < 0) {
      return std::unexpected(errno);
    }
    if (got == 0) {
      break;
    }
    size += static_cast<std::size_t>(got);
  }
  text.resize(size);
  return text;
}

}  // namespace

CardFolder::CardFolder(CardFolderOptions options) : options_(std::move(options)) {}

CardFolder::Outcome CardFolder::scan(net::TimePoint now, bool reread,
                                     const std::set<std::string>& deleted) {
  Outcome outcome;
  const Descriptor folder(open(options_.path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  Result<std::set<std::string>> names =
      folder.get() < 0 ? fail(ErrorCode::Internal, reason_of(errno)) : list(folder.get());
  if (!names) {
    note_absence(std::move(names.error().message));
    for (const std::string& name : deleted) {
      forget(name, outcome);
    }
    find_duplicates();
    return outcome;
  }
  for (auto name = names->begin(); name != names->end();) {
    name = look(folder.get(), *name, reread, now, outcome) ? std::next(name) : names->erase(name);
  }
  for (auto entry = entries_.begin(); entry != entries_.end();) {
    const std::string name = (entry++)->first;
    if (!names->contains(name)) {
      forget(name, outcome);
    }
  }
  find_duplicates();
  if (!present()) {
    absence_.clear();
    ever_present_ = true;
    log::info("watching model cards folder={} files={}", options_.path, entries_.size());
  }
  return outcome;
}

/// The names of card files. When there are too many, those whose cards count stay and the rest is
/// filled up in the order of names.
Result<std::set<std::string>> CardFolder::list(int folder_fd) {
  const int fd = openat(folder_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(fd < 0 ? nullptr : fdopendir(fd), closedir);
  if (!folder) {
    const int error = errno;
    if (fd >= 0) {
      close(fd);
    }
    return fail(ErrorCode::Internal, reason_of(error));
  }
  std::set<std::string> known;
  std::set<std::string> names;
  bool too_many = false;
  while (true) {
    errno = 0;
    const dirent* item = readdir(folder.get());
    if (!item) {
      break;
    }
    if (!is_card_name(item->d_name)) {
      continue;
    }
    const auto entry = entries_.find(item->d_name);
    (entry != entries_.end() && entry->second.card ? known : names).insert(item->d_name);
    if (!names.empty() && known.size() + names.size() > options_.max_files) {
      names.erase(std::prev(names.end()));
      too_many = true;
    }
  }
  if (errno != 0) {
    return fail(ErrorCode::Internal, reason_of(errno));
  }
  if (too_many && !too_many_) {
    log::error(
        "too many model cards: {} files are read, those known as cards and the first others; "
        "the rest is ignored folder={}",
        options_.max_files, options_.path);
  }
  too_many_ = too_many;
  names.merge(known);
  return names;
}

/// Reads a file if it has changed. False when it is not there any more.
bool CardFolder::look(int folder_fd, const std::string& name, bool reread, net::TimePoint now,
                      Outcome& outcome) {
  struct stat stat{};
  if (fstatat(folder_fd, name.c_str(), &stat, 0) != 0) {
    if (errno == ENOENT) {
      return false;
    }
    take_failure(name, "cannot be read: " + reason_of(errno), now, outcome);
    return true;
  }
  const Entry& entry = entries_[name];
  const bool settled = entry.problem.empty() || entry.reported;
  if (entry.read && settled && !reread && same_version(entry.stat, stat)) {
    return true;
  }
  // A pipe must not block, and what is opened may be another file than the one looked at.
  const Descriptor file(
      openat(folder_fd, name.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  if (file.get() < 0 || fstat(file.get(), &stat) != 0) {
    take_failure(name, "cannot be read: " + reason_of(errno), now, outcome);
  } else if (!S_ISREG(stat.st_mode)) {
    take_failure(name, "is not a regular file", now, outcome);
  } else if (const auto text = read_text(file.get()); !text) {
    take_failure(name, "cannot be read: " + reason_of(text.error()), now, outcome);
  } else {
    take_text(name, stat, *text, now, outcome);
  }
  return true;
}

/// There is no text: the next one is news even if it is the former.
void CardFolder::take_failure(const std::string& name, std::string reason, net::TimePoint now,
                              Outcome& outcome) {
  Entry& entry = entries_[name];
  entry.read = false;
  note_problem(entry, std::move(reason), now);
  report(name, entry, now, outcome);
}

void CardFolder::take_text(const std::string& name, const struct stat& stat, std::string_view text,
                           net::TimePoint now, Outcome& outcome) {
  Entry& entry = entries_[name];
  entry.stat = stat;
  const std::uint64_t content = XXH3_64bits(text.data(), text.size());
  if (entry.read && entry.content == content) {
    report(name, entry, now, outcome);
    return;
  }
  entry.read = true;
  entry.content = content;
  const std::string_view stem(name.data(), name.size() - kSuffix.size());
  Result<Card> card = parse_card(text, stem);
  if (!card) {
    entry.problem.clear();  // the reason may be the same, the text is not
    note_problem(entry, std::move(card.error().message), now);
    report(name, entry, now, outcome);
    return;
  }
  if (entry.reported) {
    log::info("model card is valid again file={}/{}", options_.path, name);
  }
  entry.problem.clear();
  entry.reported = false;
  entry.card = std::move(*card);
  outcome.changed = true;
}

void CardFolder::note_problem(Entry& entry, std::string reason, net::TimePoint now) {
  if (entry.problem != reason) {
    entry.problem = std::move(reason);
    entry.problem_since = now;
    entry.reported = false;
  }
}

/// Complains about a file once it has had the time to become whole.
void CardFolder::report(const std::string& name, Entry& entry, net::TimePoint now,
                        Outcome& outcome) {
  if (entry.problem.empty() || entry.reported) {
    return;
  }
  const net::TimePoint due = entry.problem_since + options_.grace;
  if (now < due) {
    outcome.again = std::min(outcome.again.value_or(net::Duration::max()), due - now);
    return;
  }
  entry.reported = true;
  log::error("model card cannot be used; {} file={}/{} reason=\"{}\"",
             entry.card ? "its last valid version stays in force" : "it is left out", options_.path,
             name, entry.problem);
}

void CardFolder::forget(const std::string& name, Outcome& outcome) {
  const auto entry = entries_.find(name);
  if (entry == entries_.end()) {
    return;
  }
  outcome.changed = outcome.changed || entry->second.card.has_value();
  entries_.erase(entry);
}

/// Of the files with one key the first counts; each other one is named once.
void CardFolder::find_duplicates() {
  std::unordered_map<std::string, const std::string*> first;
  for (auto& [name, entry] : entries_) {
    if (!entry.card || !options_.filter.matches(entry.card->name_space)) {
      entry.duplicate_of.clear();
      continue;
    }
    const auto [place, is_first] = first.emplace(entry.card->key(), &name);
    const std::string other = is_first ? std::string() : *place->second;
    if (other != entry.duplicate_of && !is_first) {
      log::error("model card left out: another file has the same key file={}/{} other={} key={}",
                 options_.path, name, other, place->first);
    }
    entry.duplicate_of = other;
  }
}

void CardFolder::note_absence(std::string reason) {
  if (absence_ == reason) {
    return;
  }
  absence_ = std::move(reason);
  log::warn("the folder of model cards cannot be listed; {} folder={} reason=\"{}\"",
            ever_present_ ? "its last cards stay in force" : "waiting for it", options_.path,
            absence_);
}

std::vector<Card> CardFolder::cards() const {
  std::vector<Card> out;
  for (const auto& [name, entry] : entries_) {
    if (entry.card && entry.duplicate_of.empty() &&
        options_.filter.matches(entry.card->name_space)) {
      out.push_back(*entry.card);
    }
  }
  return out;
}

}  // namespace fairlead::fleet
