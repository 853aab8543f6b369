#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.hpp"
#include "hub/model_id.hpp"

namespace fairlead::hub {

/// One model's part of the Hugging Face cache, as `huggingface_hub` lays it out and reads it:
/// `refs/REVISION` names a commit, `snapshots/COMMIT/FILE` is a link to `blobs/ETAG`,
/// `.no_exist/COMMIT/FILE` says that the hub does not have the file.
class ModelCache {
 public:
  /// Touches no file.
  ModelCache(std::filesystem::path cache, ModelId id);

  /// The snapshot of the model's revision; nothing when there is none.
  std::optional<std::filesystem::path> find_snapshot() const;
  /// What is probably the main revision where no revision has a name, as in a cache that was filled
  /// for one commit: a single snapshot.
  std::optional<std::filesystem::path> guess_snapshot() const;
  /// True when the model has any folder here.
  bool exists() const;
  /// True when the snapshot is known to have every text-side file that the hub has for it.
  bool is_whole(const std::filesystem::path& snapshot) const;

  /// The snapshot's folder, there or not.
  std::filesystem::path snapshot(std::string_view commit) const;
  /// A checksum's file.
  std::filesystem::path blob(std::string_view etag) const;
  /// The file that is locked by whoever writes the blob.
  std::filesystem::path lock(std::string_view etag) const;
  /// The cache of all models.
  const std::filesystem::path& root() const { return root_; }

  /// Makes the file of a snapshot a link to the blob, in one step.
  Result<> link(std::string_view commit, const std::string& file, std::string_view etag) const;
  /// Remembers that the hub does not have the file.
  Result<> note_absent(std::string_view commit, std::string_view file) const;
  /// Lets the model's revision name the commit, in one step.
  Result<> set_reference(std::string_view commit) const;

 private:
  std::filesystem::path root_;
  std::filesystem::path folder_;
  ModelId id_;
};

/// True when the folder has a file that holds a tokenizer.
bool has_tokenizer(const std::filesystem::path& folder);

/// Makes the folders above a file.
Result<> make_parents(const std::filesystem::path& file);

/// A failure at a file of the cache.
std::unexpected<Error> cache_failure(std::string_view what, const std::filesystem::path& file,
                                     const std::error_code& error);

}  // namespace fairlead::hub
