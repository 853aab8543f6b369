#include "base/lines.hpp"

namespace fairlead {

bool read_line(std::istream& in, std::size_t limit, std::string& line, bool& cut) {
  line.clear();
  cut = false;
  std::streambuf* buffer = in.rdbuf();
  for (int c = buffer->sbumpc();; c = buffer->sbumpc()) {
    if (c == std::istream::traits_type::eof()) {
      return !line.empty() || cut;
    }
    if (c == '\n') {
      return true;
    }
    if (line.size() < limit) {
      line += static_cast<char>(c);
    } else {
      cut = true;
    }
  }
}

}  // namespace fairlead
