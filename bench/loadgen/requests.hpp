#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "loadgen/options.hpp"

namespace fairlead::loadgen {

/// Makes the HTTP requests of a run: all alike, or, with a corpus, each with a text of its own.
class Requests {
 public:
  /// The options are borrowed.
  explicit Requests(const Options& options);

  /// The next request, streamed or not.
  std::string next(bool stream);

 private:
  void append_history();
  std::string_view slice(std::size_t bytes);
  std::string make(bool stream);

  const Options& options_;
  std::string history_;     // JSON of the messages before the last one, each with a comma behind
  std::size_t offset_ = 0;  // of the next text in the corpus
  std::string same_[2];     // without a corpus: the request, by `stream`
};

}  // namespace fairlead::loadgen
