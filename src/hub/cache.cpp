#include "hub/cache.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <utility>
#include <vector>

#include "base/descriptor.hpp"
#include "base/json.hpp"
#include "hub/text_files.hpp"

namespace fairlead::hub {
namespace {

namespace fs = std::filesystem;

// A commit and a line's end.
constexpr std::size_t kMaxReferenceBytes = 128;
// Of the list of a repository's files that `huggingface_hub` keeps.
constexpr std::uintmax_t kMaxListBytes = std::uintmax_t{32} << 20;

std::error_code last_error() { return {errno, std::generic_category()}; }

// Empty when it is no file; a pipe must not block.
std::string read_text(const fs::path& file, std::uintmax_t max_bytes) {
  std::error_code error;
  if (!fs::is_regular_file(file, error)) {
    return {};
  }
  const std::uintmax_t size = fs::file_size(file, error);
  if (error || size > max_bytes) {
    return {};
  }
  std::string text(size, '\0');
  std::ifstream in(file, std::ios::binary);
  in.read(text.data(), static_cast<std::streamsize>(size));
  text.resize(static_cast<std::size_t>(in.gcount()));
  return text;
}

/// The commit that a file of `refs` names; it must not lead out of `snapshots`.
std::string read_reference(const fs::path& file) {
  std::string text = read_text(file, kMaxReferenceBytes);
  text.resize(std::min(text.size(), text.find_first_of("\r\n ")));
  return text == "." || text == ".." || text.find('/') != std::string::npos ? std::string() : text;
}

/// The names in `huggingface_hub`'s list of a commit's files; nothing when it has none.
std::optional<std::vector<std::string>> read_list(const fs::path& file) {
  const auto document = json::parse(read_text(file, kMaxListBytes));
  const json::Value* version = document ? document->find("format_version") : nullptr;
  const json::Value* files = document ? document->find("files") : nullptr;
  if (!version || !version->as_int() || *version->as_int() != 1 || !files || !files->as_object()) {
    return std::nullopt;
  }
  std::vector<std::string> names;
  for (const json::Member& member : *files->as_object()) {
    names.push_back(member.key);
  }
  return names;
}

/// A name beside `file` that no other process takes.
fs::path beside(const fs::path& file) {
  return fs::path(fmt::format("{}.{}.tmp", file.string(), getpid()));
}

/// Puts a link in the place of whatever is there.
std::error_code replace_link(const fs::path& target, const fs::path& file) {
  const fs::path fresh = beside(file);
  std::error_code error;
  fs::remove(fresh, error);
  fs::create_symlink(target, fresh, error);
  if (!error) {
    fs::rename(fresh, file, error);
  }
  return error;
}

}  // namespace

std::unexpected<Error> cache_failure(std::string_view what, const fs::path& file,
                                     const std::error_code& error) {
  return fail(ErrorCode::InvalidRequest, fmt::format("the Hugging Face cache: cannot {} {}: {}",
                                                     what, file.string(), error.message()));
}

Result<> make_parents(const fs::path& file) {
  std::error_code error;
  fs::create_directories(file.parent_path(), error);
  if (error) {
    return cache_failure("make", file.parent_path(), error);
  }
  return {};
}

bool has_tokenizer(const fs::path& folder) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (is_tokenizer_file(entry.path().filename().string()) && entry.exists(error)) {
      return true;
    }
  }
  return false;
}

ModelCache::ModelCache(fs::path cache, ModelId id)
    : root_(std::move(cache)), folder_(root_ / folder_name(id)), id_(std::move(id)) {}

bool ModelCache::exists() const {
  std::error_code error;
  return fs::is_directory(folder_, error);
}

std::optional<fs::path> ModelCache::find_snapshot() const {
  std::error_code error;
  const std::string commit =
      is_commit(id_.revision) ? id_.revision : read_reference(folder_ / "refs" / id_.revision);
  if (!commit.empty() && fs::is_directory(snapshot(commit), error)) {
    return snapshot(commit);
  }
  return std::nullopt;
}

std::optional<fs::path> ModelCache::guess_snapshot() const {
  std::error_code error;
  if (id_.revision != kMainRevision) {
    return std::nullopt;
  }
  for (const auto& entry : fs::recursive_directory_iterator(folder_ / "refs", error)) {
    if (entry.is_regular_file(error)) {
      return std::nullopt;
    }
  }
  std::vector<fs::path> snapshots;
  for (const auto& entry : fs::directory_iterator(folder_ / "snapshots", error)) {
    snapshots.push_back(entry.path());
  }
  return snapshots.size() == 1 ? std::optional(snapshots.front()) : std::nullopt;
}

bool ModelCache::is_whole(const fs::path& snapshot) const {
  const std::string commit = snapshot.filename().string();
  std::error_code error;
  if (const auto names = read_list(folder_ / "trees" / (commit + ".json"))) {
    return std::ranges::all_of(choose_text_files(*names), [&](const std::string& name) {
      return fs::exists(snapshot / name, error);
    });
  }
  return std::ranges::all_of(kCoreFiles, [&](std::string_view name) {
    return fs::exists(snapshot / name, error) ||
           fs::exists(folder_ / ".no_exist" / commit / name, error);
  });
}

fs::path ModelCache::snapshot(std::string_view commit) const {
  return folder_ / "snapshots" / commit;
}

fs::path ModelCache::blob(std::string_view etag) const { return folder_ / "blobs" / etag; }

fs::path ModelCache::lock(std::string_view etag) const {
  return root_ / ".locks" / folder_.filename() / fmt::format("{}.lock", etag);
}

Result<> ModelCache::link(std::string_view commit, const std::string& file,
                          std::string_view etag) const {
  const fs::path path = snapshot(commit) / file;
  if (Result<> made = make_parents(path); !made) {
    return made;
  }
  const fs::path target = blob(etag).lexically_relative(path.parent_path());
  if (const std::error_code error = replace_link(target, path); error) {
    return cache_failure("link", path, error);
  }
  return {};
}

Result<> ModelCache::note_absent(std::string_view commit, std::string_view file) const {
  const fs::path path = folder_ / ".no_exist" / commit / file;
  if (Result<> made = make_parents(path); !made) {
    return made;
  }
  const Descriptor note(open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0666));
  if (note.get() < 0) {
    return cache_failure("write", path, last_error());
  }
  return {};
}

Result<> ModelCache::set_reference(std::string_view commit) const {
  if (id_.revision == commit) {
    return {};
  }
  const fs::path path = folder_ / "refs" / id_.revision;
  if (read_reference(path) == commit) {
    return {};
  }
  if (Result<> made = make_parents(path); !made) {
    return made;
  }
  const fs::path fresh = beside(path);
  std::ofstream out(fresh, std::ios::binary | std::ios::trunc);
  out << commit;
  out.close();
  if (!out) {
    return cache_failure("write", fresh, last_error());
  }
  std::error_code error;
  fs::rename(fresh, path, error);
  if (error) {
    return cache_failure("write", path, error);
  }
  return {};
}

}  // namespace fairlead::hub
