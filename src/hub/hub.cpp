#include "hub/hub.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <optional>
#include <utility>
#include <vector>

#include "base/log.hpp"
#include "hub/cache.hpp"
#include "hub/client.hpp"
#include "hub/environment.hpp"
#include "hub/file_lock.hpp"
#include "hub/model_id.hpp"
#include "hub/part_file.hpp"
#include "hub/text_files.hpp"

namespace fairlead::hub {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr int kTries = 5;
// When the cache has a model that might be whole, nobody waits long for the hub's word.
constexpr int kTriesForWhole = 1;
constexpr std::size_t kMaxFiles = 256;
constexpr std::chrono::seconds kProgressPause(3);

std::unexpected<Error> wrong(std::string message) {
  return fail(ErrorCode::InvalidRequest, std::move(message));
}

bool there(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error);
}

double mebibytes(std::uint64_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

/// Fetches a model's files, one after the other.
class Download {
 public:
  Download(const Environment& environment, const ModelId& id, const ModelCache& cache, int tries,
           const std::stop_token& stop)
      : environment_(environment),
        id_(id),
        cache_(cache),
        client_(environment, id, tries, stop),
        stop_(stop) {}

  Result<fs::path> run() {
    if (Result<> usable = client_.check(); !usable) {
      return std::unexpected(usable.error());
    }
    Result<Listing> listing = client_.list();
    if (!listing) {
      return from_hub(listing.error().message);
    }
    commit_ = listing->commit;
    const std::vector<std::string> names = choose_text_files(listing->files);
    if (names.empty()) {
      return wrong(fmt::format("the model `{}` at {} has neither tokenizer nor configuration",
                               to_string(id_), environment_.endpoint));
    }
    if (names.size() > kMaxFiles) {
      return wrong(
          fmt::format("the model `{}` at {} has {} files besides weights, which no model has",
                      to_string(id_), environment_.endpoint, names.size()));
    }
    Result<> done = describe(names);
    if (done && !files_.empty()) {
      done = fetch();
    }
    if (done) {
      done = finish(names);
    }
    if (!done) {
      return std::unexpected(done.error());
    }
    return cache_.snapshot(commit_);
  }

 private:
  std::unexpected<Error> from_hub(std::string_view reason, std::string_view file = {}) const {
    return wrong(fmt::format("cannot download {}`{}` from {}: {}",
                             file.empty() ? std::string() : fmt::format("{} of ", file),
                             to_string(id_), environment_.endpoint, reason));
  }

  /// Finds out about the files that the snapshot does not have.
  Result<> describe(const std::vector<std::string>& names) {
    for (const std::string& name : names) {
      if (there(cache_.snapshot(commit_) / name)) {
        continue;
      }
      Result<RemoteFile> file = client_.describe(commit_, name);
      if (!file) {
        return from_hub(file.error().message, name);
      }
      total_ += file->size.value_or(0);
      files_.push_back(std::move(*file));
    }
    if (total_ > kMaxTotalBytes) {
      return wrong(fmt::format("the files of `{}` have {} bytes, which no model's have",
                               to_string(id_), total_));
    }
    return {};
  }

  Result<> fetch() {
    const Clock::time_point begin = Clock::now();
    last_line_ = begin;
    log::info("downloading {} files ({:.1f} MiB) of `{}` from {} to {}", files_.size(),
              mebibytes(total_), to_string(id_), environment_.endpoint, cache_.root().string());
    for (const RemoteFile& file : files_) {
      if (Result<> fetched = fetch(file); !fetched) {
        return fetched;
      }
      if (Result<> linked = cache_.link(commit_, file.name, file.etag); !linked) {
        return linked;
      }
    }
    log::info("downloaded `{}`, commit {}, in {:.1f} s", to_string(id_), commit_,
              std::chrono::duration<double>(Clock::now() - begin).count());
    return {};
  }

  Result<> fetch(const RemoteFile& file) {
    const fs::path blob = cache_.blob(file.etag);
    const auto lock = FileLock::acquire(cache_.lock(file.etag), stop_, [&] {
      log::info("another process downloads {} of `{}`: waiting for it", file.name, to_string(id_));
    });
    if (!lock) {
      return std::unexpected(lock.error());
    }
    if (!*lock) {
      return from_hub("interrupted", file.name);
    }
    if (there(blob)) {
      done_ += file.size.value_or(0);
      return {};
    }
    Result<PartFile> part = PartFile::open(blob);
    if (!part) {
      return std::unexpected(part.error());
    }
    const Result<> fetched =
        client_.fetch(commit_, file, *part, [&] { tell(file, done_ + part->size()); });
    if (!fetched) {
      return from_hub(fetched.error().message, file.name);
    }
    done_ += part->size();
    if (done_ > kMaxTotalBytes) {
      return from_hub("the files are larger than those of any model", file.name);
    }
    return part->publish();
  }

  void tell(const RemoteFile& file, std::uint64_t done) {
    const Clock::time_point now = Clock::now();
    if (now - last_line_ >= kProgressPause) {
      last_line_ = now;
      log::info("downloading `{}`: {}, {:.1f} of {:.1f} MiB", to_string(id_), file.name,
                mebibytes(done), mebibytes(total_));
    }
  }

  /// Makes it known, to Hugging Face's tools as well, that the snapshot is whole.
  Result<> finish(const std::vector<std::string>& names) const {
    for (const std::string_view name : kCoreFiles) {
      if (!std::ranges::binary_search(names, name)) {
        if (Result<> noted = cache_.note_absent(commit_, name); !noted) {
          return noted;
        }
      }
    }
    return cache_.set_reference(commit_);
  }

  const Environment& environment_;
  const ModelId& id_;
  const ModelCache& cache_;
  Client client_;
  std::stop_token stop_;
  std::string commit_;
  std::vector<RemoteFile> files_;  // that are missing
  std::uint64_t total_ = 0;        // of what is known
  std::uint64_t done_ = 0;
  Clock::time_point last_line_;
};

std::unexpected<Error> not_here(const ModelId& id, const ModelCache& cache, std::string_view why) {
  if (!cache.exists()) {
    return wrong(fmt::format("no model `{}`: neither a folder nor in the Hugging Face cache {}{}",
                             to_string(id), cache.root().string(), why));
  }
  return wrong(fmt::format("the Hugging Face cache has `{}` but refs/{} names no snapshot of it{}",
                           id.name, id.revision, why));
}

}  // namespace

bool is_hub_name(const std::string& path) { return !there(path) && parse_model_id(path); }

Result<fs::path> resolve_model(const std::string& path, const LookUp& look_up) {
  if (there(path)) {
    return fs::path(path);
  }
  const std::optional<ModelId> id = parse_model_id(path);
  if (!id) {
    return wrong(fmt::format("model folder `{}` does not exist", path));
  }
  const Environment environment = read_environment();
  const ModelCache cache(environment.cache, *id);
  const bool ask = look_up.download && !environment.offline;
  std::optional<fs::path> snapshot = cache.find_snapshot();
  if (snapshot && (!ask || cache.is_whole(*snapshot))) {
    return *snapshot;
  }
  if (!snapshot) {
    snapshot = cache.guess_snapshot();
  }
  if (snapshot && !ask) {
    return *snapshot;
  }
  if (!ask) {
    return not_here(*id, cache,
                    look_up.download ? ", and HF_HUB_OFFLINE forbids to download it" : "");
  }
  const bool usable = snapshot && has_tokenizer(*snapshot);
  Download download(environment, *id, cache, usable ? kTriesForWhole : kTries, look_up.stop);
  Result<fs::path> folder = download.run();
  if (!folder && usable) {
    log::warn("{}; using what {} has of it", folder.error().message, snapshot->string());
    return *snapshot;
  }
  return folder;
}

}  // namespace fairlead::hub
