// links: fl_tokenizer
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "base/utf8.hpp"
#include "tokenizer/model_json.hpp"

// Whatever loads must encode any text without harm, to tokens that it knows, and say the same
// again.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using fairlead::tokenizer::ModelSource;
  using fairlead::tokenizer::TokenId;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::size_t cut = input.find('\0');  // behind it: the text
  const std::string_view json = input.substr(0, cut);
  std::string padded(json);
  padded.resize(json.size() + 64);
  const auto source = fairlead::tokenizer::open_model(
      {std::string_view(padded).substr(0, json.size()), padded.size()});
  if (!source) {
    return 0;
  }
  const auto model = fairlead::tokenizer::read_model(*source);
  if (!model) {
    if (model.error().message.empty()) {
      std::abort();
    }
    return 0;
  }
  const std::string text =
      fairlead::utf8::lossy(cut == std::string_view::npos ? json : input.substr(cut + 1));
  std::vector<TokenId> first;
  std::vector<TokenId> second;
  const bool encoded = (*model)->encode(text, first, {}).has_value();
  if ((*model)->encode(text, second, {}).has_value() != encoded || (encoded && first != second)) {
    std::abort();
  }
  for (const TokenId id : first) {
    if (!(*model)->spelling(id) || id >= (*model)->id_limit()) {
      std::abort();
    }
  }
  return 0;
}
