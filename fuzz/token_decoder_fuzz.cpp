// links: fl_tokenizer
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.hpp"
#include "base/utf8.hpp"
#include "tokenizer/token_decoder.hpp"

namespace fairlead::tokenizer {
namespace {

using Tokens = std::vector<std::string_view>;

// Steps by letter; `%` stands for the text of the field that follows the chain, `$` for the next.
constexpr std::string_view kSteps[] = {
    R"({"type":"Replace","pattern":{"String":%},"content":$})",
    R"({"type":"Replace","pattern":{"Regex":"a+|b*"},"content":$})",
    R"({"type":"ByteFallback"})",
    R"({"type":"ByteLevel"})",
    R"({"type":"Fuse"})",
    R"({"type":"Strip","content":" ","start":1,"stop":0})",
    R"({"type":"Strip","content":"a","start":1,"stop":2})",
    R"({"type":"WordPiece","prefix":%,"cleanup":true})",
    R"({"type":"WordPiece","prefix":"##","cleanup":false})",
    R"({"type":"Metaspace","replacement":"\u2581"})",
    R"({"type":"Metaspace","replacement":"a","prepend_scheme":"never"})",
    R"({"type":"CTC","pad_token":%,"word_delimiter_token":$,"cleanup":true})",
    R"({"type":"BPEDecoder","suffix":%})",
    R"({"type":"Replace","pattern":{"String":"\u2581"},"content":" "})",
};

// A chain of the letters a, b …, at most six steps; no letter is no decoder.
std::string chain(std::string_view letters, std::string_view first, std::string_view second) {
  if (letters.empty()) {
    return "null";
  }
  std::string out = R"({"type":"Sequence","decoders":[)";
  for (const char letter : letters.substr(0, 6)) {
    out += out.back() == '[' ? "" : ",";
    for (const char c : kSteps[static_cast<unsigned char>(letter - 'a') % std::size(kSteps)]) {
      if (c == '%' || c == '$') {
        json::append_string(out, (c == '%' ? first : second).substr(0, 16));
      } else {
        out += c;
      }
    }
  }
  return out + "]}";
}

void expect(bool condition) {
  if (!condition) {
    std::abort();
  }
}

// The pieces for `tokens` behind a prompt, joined; `sent` is how much came before the flush.
std::string stream(const TokenDecoder& decoder, std::span<const std::string_view> prompt,
                   std::span<const std::string_view> tokens, std::size_t& sent) {
  TokenDecoder::Stream stream(decoder, prompt);
  std::string out;
  for (const std::string_view token : tokens) {
    stream.push(token, out);
  }
  sent = out.size();
  stream.flush(out);
  return out;
}

std::size_t common_characters(std::string_view left, std::string_view right) {
  std::size_t pos = 0;
  while (pos < left.size() && pos < right.size()) {
    std::size_t next = pos;
    std::size_t other = pos;
    if (utf8::decode(left, next) != utf8::decode(right, other)) {
      break;
    }
    pos = next;
  }
  return pos;
}

void check_streaming(const TokenDecoder& decoder, const Tokens& tokens) {
  const std::span<const std::string_view> all(tokens);
  const std::string whole = decoder.decode_by_character(all);
  std::size_t sent_before = 0;
  for (std::size_t cut = 0; cut <= tokens.size(); ++cut) {
    const std::string head = decoder.decode_by_character(all.first(cut));
    std::size_t sent = 0;
    const std::string joined = stream(decoder, {}, all.first(cut), sent);
    expect(joined == head && utf8::valid(joined));
    expect(sent >= sent_before && whole.starts_with(std::string_view(joined).substr(0, sent)));
    sent_before = sent;
    if (cut != 0) {
      const std::string rest = stream(decoder, all.first(cut), all.subspan(cut), sent);
      expect(rest == whole.substr(common_characters(head, whole)));
    }
  }
}

void check(std::string_view input) {
  std::vector<std::string> fields(1);
  for (const char c : input) {
    if (c == '\0' && fields.size() < 32) {
      fields.emplace_back();
    } else {
      fields.back() += c;
    }
  }
  fields.resize(std::max<std::size_t>(fields.size(), 3));
  for (std::string& field : fields) {
    field = utf8::lossy(field);
  }
  const auto config = json::parse(chain(fields[0], fields[1], fields[2]));
  expect(config.has_value());
  const auto decoder = TokenDecoder::create(*config);
  if (!decoder) {
    expect(!decoder.error().message.empty());
    return;
  }
  const Tokens tokens(fields.begin() + 3, fields.end());
  check_streaming(*decoder, tokens);
  // The reference differs only where a run of byte tokens has characters and other bytes.
  if (json::dump(*config).find("ByteFallback") == std::string::npos) {
    expect(decoder->decode(tokens) == decoder->decode_by_character(tokens));
  }
}

}  // namespace
}  // namespace fairlead::tokenizer

// Input: fields separated by NUL: the chain, two texts for its steps, then the tokens.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fairlead::tokenizer::check({reinterpret_cast<const char*>(data), size});
  return 0;
}
