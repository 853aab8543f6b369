// links: fl_tokenizer
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/utf8.hpp"
#include "tokenizer/incremental_decoder.hpp"
#include "tokenizer/tokenizer.hpp"

// Whatever loads must encode and decode without harm, and streaming must equal decoding.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using fairlead::tokenizer::IncrementalDecoder;
  using fairlead::tokenizer::TokenId;
  using fairlead::tokenizer::Tokenizer;
  // The first byte says how much of the end is a text.
  const std::size_t text_size = size == 0 ? 0 : std::min<std::size_t>(data[0], size - 1);
  const std::string input(reinterpret_cast<const char*>(data), size);
  const std::string text = fairlead::utf8::lossy(std::string_view(input).substr(size - text_size));
  const std::string file = size == 0 ? "" : input.substr(1, size - text_size - 1);
  for (const bool folder : {false, true}) {
    const auto tokenizer = Tokenizer::parse_file(
        "tokenizer.model", file,
        folder ? std::optional<std::string_view>(R"({"legacy":false})") : std::nullopt);
    if (!tokenizer) {
      if (tokenizer.error().message.empty()) {
        std::abort();
      }
      continue;
    }
    std::vector<TokenId> ids;
    if ((*tokenizer)->encode(text, folder, ids)) {
      for (const TokenId id : ids) {
        if (!(*tokenizer)->is_known(id)) {
          std::abort();
        }
      }
    }
    for (TokenId id = 0; id < 40; ++id) {
      ids.push_back(id * 7 % 300);
    }
    for (const bool skip : {false, true}) {
      IncrementalDecoder decoder(**tokenizer, skip);
      std::string joined;
      for (const TokenId id : ids) {
        decoder.push(id, joined);
        if (!fairlead::utf8::valid(joined)) {
          std::abort();
        }
      }
      decoder.flush(joined);
      if (joined != (*tokenizer)->decode(ids, skip)) {
        std::abort();
      }
    }
  }
  return 0;
}
