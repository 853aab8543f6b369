#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace fairlead::mock {

/// A SHA-256 digest.
using Sha256Digest = std::array<std::uint8_t, 32>;

/// The SHA-256 digest of `bytes`.
Sha256Digest sha256(std::string_view bytes);

}  // namespace fairlead::mock
