#pragma once

#include <cstddef>
#include <istream>
#include <string>

namespace fairlead {

/// Reads up to the next newline, which is not kept; false at the end of the input. Of a line above
/// `limit` bytes the rest is consumed, dropped and reported as `cut`.
bool read_line(std::istream& in, std::size_t limit, std::string& line, bool& cut);

}  // namespace fairlead
