// links: fl_tokenizer
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/incremental_decoder.hpp"
#include "tokenizer/token_decoder.hpp"
#include "tokenizer/tokenizer.hpp"

namespace {

// What a stream of the ids gives all in all: the decoding, but that of a run of byte tokens it
// keeps the characters.
std::string streamed(const fairlead::tokenizer::Tokenizer& tokenizer,
                     const std::vector<fairlead::tokenizer::TokenId>& ids, bool skip) {
  const fairlead::tokenizer::TokenDecoder* const decoder = tokenizer.decoder();
  std::string whole = tokenizer.decode(ids, skip);
  if (decoder == nullptr) {
    return whole;
  }
  std::vector<std::string_view> tokens;
  for (const fairlead::tokenizer::TokenId id : ids) {
    if (tokenizer.is_known(id) && !(skip && tokenizer.is_special(id))) {
      tokens.push_back(tokenizer.decoder_token(id));
    }
  }
  return decoder->decode_by_character(tokens);
}

}  // namespace

// Whatever loads must encode and decode without harm, and streaming must equal decoding.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using fairlead::tokenizer::IncrementalDecoder;
  using fairlead::tokenizer::TokenId;
  using fairlead::tokenizer::Tokenizer;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::size_t cut = input.find('\0');  // behind it: tokenizer_config.json
  const auto tokenizer = Tokenizer::parse(
      input.substr(0, cut), cut == input.npos ? std::string_view() : input.substr(cut + 1));
  if (!tokenizer) {
    if (tokenizer.error().message.empty()) {
      std::abort();
    }
    return 0;
  }
  const std::string_view text = "ab I'm  12\n <x>\u00e9e\u0301\u4e2d <|s|>";
  for (const bool add_special_tokens : {false, true}) {
    std::vector<TokenId> ids = {1};
    const auto encoded = (*tokenizer)->encode(text, add_special_tokens, ids);
    if (!encoded && ids.size() != 1) {
      std::abort();
    }
    for (TokenId id = 0; id < 40; ++id) {
      ids.push_back(id * 7 % 300);
    }
    for (const bool skip : {false, true}) {
      IncrementalDecoder decoder(**tokenizer, skip);
      std::string joined;
      for (const TokenId id : ids) {
        decoder.push(id, joined);
      }
      decoder.flush(joined);
      if (joined != streamed(**tokenizer, ids, skip)) {
        std::abort();
      }
    }
  }
  return 0;
}
