#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace fairlead::hub {

/// What a file's ETag says about its bytes.
enum class ChecksumKind : std::uint8_t {
  GitBlob,  ///< 40 digits: SHA-1 of the file as an object of Git.
  Sha256,   ///< 64 digits: SHA-256 of the file, as Git LFS has it.
};

/// The value of an ETag header without quotes and the mark of weak ones.
std::string_view plain_etag(std::string_view header);

/// What kind a plain ETag is; nothing when it is no checksum.
std::optional<ChecksumKind> checksum_kind(std::string_view etag);

/// The checksum of all that `fd` has, in lower-case digits; nothing when it cannot be read.
std::optional<std::string> checksum_of(int fd, ChecksumKind kind);

}  // namespace fairlead::hub
