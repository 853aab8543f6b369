#include "tokenizer/decoder_step.hpp"

#include <algorithm>
#include <utility>

#include "base/utf8.hpp"
#include "tokenizer/byte_level.hpp"
#include "tokenizer/partial_character.hpp"
#include "tokenizer/utf8_valid.hpp"

namespace fairlead::tokenizer {

namespace {

namespace step = decoder_step;

using Tokens = std::vector<std::string>;

constexpr std::string_view kReplacement = "\uFFFD";

// A digit as Rust's `u8::from_str_radix` reads it.
int hex_digit(char c) {
  if (c >= '0' && c <= '9') {
    return c - '0';
  }
  const char lower = static_cast<char>(c | 0x20);
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

// A well-formed run is one token; each maximal stretch of characters in another run is one, each
// ill-formed byte another.
void append_run(std::string_view bytes, ByteRuns byte_runs, Tokens& out) {
  if (utf8::valid(bytes)) {
    out.emplace_back(bytes);
    return;
  }
  if (byte_runs == ByteRuns::Whole) {
    out.insert(out.end(), bytes.size(), std::string(kReplacement));
    return;
  }
  std::string stretch;
  const auto broken = [&](std::size_t count) {
    if (count != 0 && !stretch.empty()) {
      out.push_back(std::exchange(stretch, {}));
    }
    out.insert(out.end(), count, std::string(kReplacement));
  };
  PartialCharacter partial;
  for (const char byte : bytes) {
    const PartialCharacter::Outcome outcome = partial.push(byte);
    broken(outcome.broken_bytes);
    stretch += outcome.character;
  }
  broken(partial.size());
  if (!stretch.empty()) {
    out.push_back(std::move(stretch));
  }
}

class Apply {
 public:
  Apply(Tokens& tokens, ByteRuns byte_runs) : tokens_(tokens), byte_runs_(byte_runs) {}

  void operator()(const step::Replace& replace) const {
    for (std::string& token : tokens_) {
      replace.literal.replace_in(token, replace.content);
    }
  }
  void operator()(const step::Intersperse& intersperse) const {
    for (std::string& token : tokens_) {
      if (!token.empty() || intersperse.in_empty_tokens) {
        token = tokenizer::intersperse(token, intersperse.content);
      }
    }
  }
  void operator()(const step::RegexReplace& replace) const {
    for (std::string& token : tokens_) {
      replace_matches(replace, token);
    }
  }
  void operator()(const step::ByteFallback& /*unused*/) const {
    Tokens result;
    std::string run;
    const auto end_run = [&] {
      if (!run.empty()) {
        append_run(run, byte_runs_, result);
        run.clear();
      }
    };
    for (std::string& token : tokens_) {
      if (const std::optional<char> byte = byte_token(token)) {
        run += *byte;
      } else {
        end_run();
        result.push_back(std::move(token));
      }
    }
    end_run();
    tokens_ = std::move(result);
  }
  void operator()(const step::ByteLevel& /*unused*/) const {
    std::string bytes;
    for (const std::string& token : tokens_) {
      if (!append_byte_level_bytes(bytes, token)) {
        bytes += token;
      }
    }
    tokens_.assign(1, utf8::lossy(bytes));
  }
  void operator()(const step::Fuse& /*unused*/) const {
    std::string text;
    for (const std::string& token : tokens_) {
      text += token;
    }
    tokens_.clear();
    tokens_.push_back(std::move(text));
  }
  void operator()(const step::Strip& strip) const {
    for (std::string& token : tokens_) {
      std::string_view rest = token;
      for (std::size_t i = 0; i < strip.start && rest.starts_with(strip.content); ++i) {
        rest.remove_prefix(strip.content.size());
      }
      for (std::size_t i = 0; i < strip.stop && rest.ends_with(strip.content); ++i) {
        rest.remove_suffix(strip.content.size());
      }
      token = std::string(rest);
    }
  }
  void operator()(const step::Join& join) const {
    for (std::size_t i = 1; i < tokens_.size(); ++i) {
      if (join.prefix && tokens_[i].starts_with(*join.prefix)) {
        tokens_[i].erase(0, join.prefix->size());
      } else {
        tokens_[i].insert(0, 1, ' ');
      }
    }
  }
  void operator()(const step::Cleanup& /*unused*/) const {
    for (std::string& token : tokens_) {
      clean_up(token);
    }
  }
  void operator()(const step::Metaspace& metaspace) const {
    for (std::size_t i = 0; i < tokens_.size(); ++i) {
      metaspace.replacement.replace_in(tokens_[i], i == 0 && metaspace.drop_in_first ? "" : " ");
    }
  }
  void operator()(const step::DropRepeated& /*unused*/) const {
    tokens_.erase(std::ranges::unique(tokens_).begin(), tokens_.end());
  }
  void operator()(const step::DropEmpty& /*unused*/) const {
    std::erase_if(tokens_, [](const std::string& token) { return token.empty(); });
  }
  void operator()(const step::WordEnd& end) const {
    for (std::size_t i = 0; i < tokens_.size(); ++i) {
      const std::string_view content = i + 1 == tokens_.size() ? "" : " ";
      if (end.suffix) {
        end.suffix->replace_in(tokens_[i], content);
      } else {
        tokens_[i] = intersperse(tokens_[i], content);
      }
    }
  }

 private:
  Tokens& tokens_;
  ByteRuns byte_runs_;
};

}  // namespace

std::optional<char> byte_token(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token.back() != '>') {
    return std::nullopt;
  }
  const int low = hex_digit(token[4]);
  // The reference's parser takes a sign in front of a single digit.
  const int high = token[3] == '+' ? 0 : hex_digit(token[3]);
  if (low < 0 || high < 0) {
    return std::nullopt;
  }
  return static_cast<char>(high << 4 | low);
}

const std::vector<step::Replace>& cleanup_replacements() {
  static const std::vector<step::Replace> replacements = [] {
    constexpr std::pair<const char*, const char*> kTable[] = {
        {" .", "."},   {" ?", "?"},     {" !", "!"},    {" ,", ","},
        {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},  {" do not", " don't"},
        {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
    std::vector<step::Replace> list;
    for (const auto& [pattern, content] : kTable) {
      list.push_back({Literal(pattern), content});
    }
    return list;
  }();
  return replacements;
}

bool may_need_cleanup(std::string_view token) {
  // Every pattern begins with a space and one of these.
  constexpr std::string_view kSecond = ".?!,'nd";
  std::size_t at = token.find(' ');
  for (; at < token.size(); at = token.find(' ', at + 1)) {
    if (at + 1 < token.size() && kSecond.find(token[at + 1]) != std::string_view::npos) {
      return true;
    }
  }
  return false;
}

void clean_up(std::string& token) {
  if (!may_need_cleanup(token)) {
    return;
  }
  for (const step::Replace& replace : cleanup_replacements()) {
    replace.literal.replace_in(token, replace.content);
  }
}

std::string intersperse(std::string_view text, std::string_view content) {
  std::string out(content);
  while (!text.empty()) {
    const std::size_t length =
        std::min(character_length(static_cast<unsigned char>(text.front())), text.size());
    out += text.substr(0, length);
    out += content;
    text.remove_prefix(length);
  }
  return out;
}

void replace_matches(const step::RegexReplace& replace, std::string& token) {
  if (token.empty()) {
    return;  // the reference does not search an empty text, not even for the empty match
  }
  std::string out;
  std::size_t from = 0;
  Regex::Matches matches(replace.regex, token);
  Span match;
  for (Result<bool> found = matches.next(match); found && *found; found = matches.next(match)) {
    out.append(token, from, match.begin - from);
    out += replace.content;
    from = match.end;
  }
  out.append(token, from);
  token = std::move(out);
}

void apply(const DecoderStep& step, Tokens& tokens, ByteRuns byte_runs) {
  std::visit(Apply(tokens, byte_runs), step);
}

}  // namespace fairlead::tokenizer
