#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string_view>

#include "base/descriptor.hpp"
#include "base/error.hpp"

namespace fairlead::hub {

/// A blob that is not whole yet: `blobs/ETAG.incomplete`. What an earlier process left of it stays.
class PartFile {
 public:
  /// Opens or makes the part of the file `blob`.
  static Result<PartFile> open(const std::filesystem::path& blob);

  /// Bytes that it has.
  std::uint64_t size() const { return size_; }
  /// Adds to its end.
  Result<> append(std::string_view bytes);
  /// Forgets what it has.
  Result<> clear();
  /// True when its bytes have the checksum that `etag` is.
  bool matches(std::string_view etag) const;
  /// Lets it take the blob's place, its bytes on the disk by then.
  Result<> publish();

 private:
  PartFile(std::filesystem::path blob, std::filesystem::path path, std::unique_ptr<Descriptor> file,
           std::uint64_t size)
      : blob_(std::move(blob)), path_(std::move(path)), file_(std::move(file)), size_(size) {}

  std::filesystem::path blob_;
  std::filesystem::path path_;
  std::unique_ptr<Descriptor> file_;
  std::uint64_t size_;
};

}  // namespace fairlead::hub
