#pragma once

#include <array>
#include <cstddef>
#include <string_view>

namespace fairlead::mock {

/// BLAKE3 in its plain hash mode, 32 bytes of output. Meant for short inputs such as request ids:
/// portable, one block at a time.
std::array<unsigned char, 32> blake3(std::string_view input);

}  // namespace fairlead::mock
