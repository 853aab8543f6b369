#pragma once

#include <string>

namespace fairlead::engine {

/// An engine's words as a client or the log may read them: at most 4096 bytes, cut between
/// characters, on one line. Messages of validation errors have several.
std::string one_line(std::string text);

}  // namespace fairlead::engine
