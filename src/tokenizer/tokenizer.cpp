#include "tokenizer/tokenizer.hpp"

#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>

#include "base/json.hpp"
#include "base/utf8.hpp"
#include "tokenizer/normalization.hpp"
#include "tokenizer/normalizer.hpp"
#include "tokenizer/piece_cache.hpp"
#include "tokenizer/text_path.hpp"
#include "tokenizer/token_decoder.hpp"
#include "tokenizer/tokenizer_config.hpp"
#include "tokenizer/tokenizer_files.hpp"
#include "tokenizer/tokenizer_json.hpp"
#include "tokenizer/tokenizer_source.hpp"
#include "tokenizer/unicode.hpp"

namespace fairlead::tokenizer {

namespace {

constexpr std::size_t kMaxTextBytes = std::size_t{1} << 30;

constexpr std::size_t kUsualTokenBytes = 4;

constexpr std::uint8_t kKnown = 1;
constexpr std::uint8_t kSpecial = 2;
constexpr std::uint8_t kAdded = 4;

}  // namespace

struct Tokenizer::Parts {
  const std::uint32_t number = PieceCache::new_tokenizer();
  Normalizer normalizer;
  std::unique_ptr<const TextPath> path;
  AddedVocabulary added;
  AddedIds around;
  LengthRules length_rules;
  SpecialTokens special_tokens;
  std::vector<std::uint8_t> flags;  // by id
  std::unordered_map<TokenId, std::string>
      added_bytes;                           // what added tokens decode to by themselves
  std::size_t longest_token = 0;             // bytes of text in one token; 0: not known
  std::size_t longest_token_characters = 0;  // characters of it, where the bytes are not known

  static Result<std::shared_ptr<const Tokenizer>> create(Result<TokenizerSource> source,
                                                         TokenizerConfig config);
  Result<> add_tokens(TokenizerSource& source, std::vector<AddedToken> of_config);
  Result<> prepare_matching();
  Result<> encode_text(std::string_view text, std::vector<TokenId>& out,
                       const std::stop_token& stop) const;
  Result<> encode_piece(std::string_view text, bool at_start, std::vector<TokenId>& out,
                        const std::stop_token& stop) const;
  Result<> encode_uncached(std::string_view text, bool at_start, std::vector<TokenId>& out,
                           const std::stop_token& stop) const;
  Result<> encode_normalized(std::string_view text, std::size_t start_bytes,
                             std::vector<TokenId>& out, const std::stop_token& stop) const;
  void index_ids();
  void find_longest_token();
};

const std::string* SpecialTokens::find(std::string_view name) const {
  for (const auto& [key, text] : named) {
    if (key == name) {
      return &text;
    }
  }
  return nullptr;
}

Result<std::shared_ptr<const Tokenizer>> Tokenizer::Parts::create(Result<TokenizerSource> source,
                                                                  TokenizerConfig config) {
  if (!source) {
    return std::unexpected(source.error());
  }
  // Built now, so that no request waits for them.
  code_point_kinds();
  prepare_nfc();
  auto parts = std::make_unique<Parts>();
  parts->normalizer = std::move(source->normalizer);
  parts->around = std::move(source->around);
  parts->length_rules = source->length_rules;
  parts->special_tokens = std::move(config.special_tokens);
  for (auto& [name, text] : source->named) {
    if (parts->special_tokens.find(name) == nullptr) {
      parts->special_tokens.named.emplace_back(std::move(name), std::move(text));
    }
  }
  if (Result<> added = parts->add_tokens(*source, std::move(config.added_tokens)); !added) {
    return std::unexpected(added.error());
  }
  parts->index_ids();
  parts->find_longest_token();
  return std::shared_ptr<const Tokenizer>(new Tokenizer(std::move(parts)));
}

// Also takes the path out of the source.
Result<> Tokenizer::Parts::add_tokens(TokenizerSource& source, std::vector<AddedToken> of_config) {
  if (source.written_ids) {
    if (Result<> done = add_written_tokens(source, std::move(of_config)); !done) {
      return done;
    }
    of_config.clear();
  }
  path = std::move(source.path);
  const auto find = [&](std::string_view spelling) { return path->find(spelling); };
  added.add(source.added_tokens, path->size(), find);
  // Those that are not special must survive `skip_special_tokens`.
  std::erase_if(of_config, [&](const AddedToken& token) {
    return !token.special || added.find(token.content).has_value();
  });
  for (AddedToken& token : of_config) {
    token.id.reset();
  }
  added.add(of_config, path->size(), find);
  return source.plain_text ? Result<>() : prepare_matching();
}

Result<> Tokenizer::Parts::prepare_matching() {
  Result<> normalized;
  added.finish([&](const std::string& content) {
    std::string text = content;
    if (Result<> applied = normalizer.apply(text); !applied) {
      normalized = applied;
    }
    return text;
  });
  return normalized;
}

void Tokenizer::Parts::find_longest_token() {
  if (std::ranges::any_of(added.tokens(), [](const auto& token) {
        return token.second.token.lstrip || token.second.token.rstrip;
      })) {
    return;  // such a token takes any amount of white space
  }
  const bool by_bytes = (normalizer.empty() || normalizer.nfc_only()) && path->longest_token() != 0;
  const std::size_t of_model = by_bytes ? path->longest_token() : path->longest_token_characters();
  const std::size_t shrinks = by_bytes ? 1 : normalizer.shrinks();
  if (of_model == 0 || shrinks == 0) {
    return;
  }
  const auto size = [&](std::string_view text) {
    return by_bytes ? text.size() : utf8::count(text);
  };
  std::size_t longest = of_model * shrinks;
  for (const auto& [id, entry] : added.tokens()) {
    longest = std::max({longest, size(entry.token.content), size(entry.text) * shrinks});
  }
  (by_bytes ? longest_token : longest_token_characters) = longest;
}

void Tokenizer::Parts::index_ids() {
  std::size_t limit = path->id_limit();
  for (const auto& [id, entry] : added.tokens()) {
    limit = std::max<std::size_t>(limit, std::size_t{id} + 1);
  }
  flags.assign(limit, 0);
  for (std::size_t id = 0; id < path->id_limit(); ++id) {
    flags[id] = path->contains(static_cast<TokenId>(id)) ? kKnown : 0;
  }
  for (const auto& [id, entry] : added.tokens()) {
    flags[id] = kKnown | kAdded | (added.is_special(entry.text) ? kSpecial : 0);
    added_bytes[id] = path->added_bytes(entry.text);
  }
}

Result<> Tokenizer::Parts::encode_normalized(std::string_view text, std::size_t start_bytes,
                                             std::vector<TokenId>& out,
                                             const std::stop_token& stop) const {
  if (added.none_normalized()) {
    return path->encode(text, start_bytes, out, stop);
  }
  std::vector<TextPart> pieces;
  added.split_normalized(text, pieces);
  for (const TextPart& piece : pieces) {
    if (piece.id) {
      out.push_back(*piece.id);
      continue;
    }
    const std::string_view part = text.substr(piece.span.begin, piece.span.end - piece.span.begin);
    const std::size_t start = start_bytes - std::min(start_bytes, piece.span.begin);
    if (Result<> done = path->encode(part, start, out, stop); !done) {
      return done;
    }
  }
  return {};
}

Result<> Tokenizer::Parts::encode_uncached(std::string_view text, bool at_start,
                                           std::vector<TokenId>& out,
                                           const std::stop_token& stop) const {
  std::string normalized;
  std::size_t start_bytes = 1;
  if (normalizer.nfc_only()) {
    text = normalize_nfc(text, normalized) ? std::string_view(normalized) : text;
  } else if (!normalizer.empty()) {
    normalized = text;
    if (Result<> applied = normalizer.apply(normalized, start_bytes, stop); !applied) {
      return applied;
    }
    text = normalized;
  }
  return encode_normalized(text, at_start ? start_bytes : 0, out, stop);
}

Result<> Tokenizer::Parts::encode_piece(std::string_view text, bool at_start,
                                        std::vector<TokenId>& out,
                                        const std::stop_token& stop) const {
  PieceCache& cache = PieceCache::of_process();
  if (!cache.takes(text.size())) {
    return encode_uncached(text, at_start, out, stop);
  }
  const PieceCache::Key key = cache.key(number, at_start, text);
  if (cache.find(key, out)) {
    return {};
  }
  const std::size_t before = out.size();
  Result<> encoded = encode_uncached(text, at_start, out, stop);
  if (encoded && !stop.stop_requested()) {  // else some of the ids may mean nothing
    cache.keep(key, std::span(out).subspan(before));
  }
  return encoded;
}

Result<> Tokenizer::Parts::encode_text(std::string_view text, std::vector<TokenId>& out,
                                       const std::stop_token& stop) const {
  std::vector<TextPart> pieces;
  added.split_raw(text, pieces);
  out.reserve(out.size() + text.size() / kUsualTokenBytes);
  for (const TextPart& piece : pieces) {
    if (piece.id) {
      out.push_back(*piece.id);
      continue;
    }
    const std::string_view part = text.substr(piece.span.begin, piece.span.end - piece.span.begin);
    if (Result<> done = encode_piece(part, piece.span.begin == 0, out, stop); !done) {
      return done;
    }
  }
  return {};
}

Tokenizer::Tokenizer(std::unique_ptr<const Parts> parts) : parts_(std::move(parts)) {}

Tokenizer::~Tokenizer() = default;

Result<std::shared_ptr<const Tokenizer>> Tokenizer::load(const std::filesystem::path& path) {
  std::error_code error;
  const bool folder = std::filesystem::is_directory(path, error);
  const Result<std::filesystem::path> file = folder ? find_tokenizer_file(path) : path;
  if (!file) {
    return std::unexpected(file.error());
  }
  Result<std::string> text = read_file(*file);
  if (!text) {
    return std::unexpected(text.error());
  }
  const std::filesystem::path beside = file->parent_path() / "tokenizer_config.json";
  const auto read_config = [&]() -> Result<TokenizerConfig> {
    if (!std::filesystem::exists(beside, error)) {
      return TokenizerConfig();
    }
    const Result<std::string> json = read_file(beside);
    return json ? read_tokenizer_config(*json) : std::unexpected(json.error());
  };
  Result<TokenizerConfig> config = folder ? read_config() : TokenizerConfig();
  if (!config) {
    return std::unexpected(config.error());
  }
  Result<TokenizerSource> source = read_source(*file, std::move(*text), *config);
  if (source && folder) {
    source->plain_text = false;
  } else if (source && source->with_config) {
    config = read_config();
    if (!config) {
      return std::unexpected(config.error());
    }
  }
  Result<std::shared_ptr<const Tokenizer>> tokenizer =
      Parts::create(std::move(source), std::move(*config));
  if (!tokenizer) {
    Error failure = tokenizer.error();
    failure.message = fmt::format("{}: {}", path.string(), failure.message);
    return std::unexpected(std::move(failure));
  }
  return tokenizer;
}

Result<std::shared_ptr<const Tokenizer>> Tokenizer::parse_file(
    const std::filesystem::path& name, std::string text,
    std::optional<std::string_view> tokenizer_config_json) {
  Result<TokenizerConfig> config =
      read_tokenizer_config(tokenizer_config_json.value_or(std::string_view()));
  if (!config) {
    return std::unexpected(config.error());
  }
  Result<TokenizerSource> source = read_source(name, std::move(text), *config);
  if (source && tokenizer_config_json) {
    source->plain_text = false;
  }
  return Parts::create(std::move(source), std::move(*config));
}

Result<std::shared_ptr<const Tokenizer>> Tokenizer::parse(std::string_view tokenizer_json,
                                                          std::string_view tokenizer_config_json) {
  const Result<std::unique_ptr<const TokenizerFile>> file =
      read_tokenizer_json(std::string(tokenizer_json));
  Result<TokenizerConfig> config = read_tokenizer_config(tokenizer_config_json);
  if (!config) {
    return std::unexpected(config.error());
  }
  return Parts::create(file ? make_source(**file) : std::unexpected(file.error()),
                       std::move(*config));
}

Result<> Tokenizer::encode(std::string_view text, bool add_special_tokens,
                           std::vector<TokenId>& out, const std::stop_token& stop) const {
  if (text.size() > kMaxTextBytes) {
    return fail(ErrorCode::InvalidRequest,
                fmt::format("the text is larger than {} bytes", kMaxTextBytes));
  }
  if (!simdjson::validate_utf8(text.data(), text.size())) {
    return fail(ErrorCode::InvalidRequest, "the text is not valid UTF-8");
  }
  const std::size_t before = out.size();
  if (add_special_tokens) {
    out.insert(out.end(), parts_->around.before.begin(), parts_->around.before.end());
  }
  if (Result<> encoded = parts_->encode_text(text, out, stop); !encoded) {
    out.resize(before);
    return encoded;
  }
  if (add_special_tokens) {
    out.insert(out.end(), parts_->around.behind.begin(), parts_->around.behind.end());
  }
  return {};
}

std::size_t Tokenizer::min_tokens(std::string_view text) const {
  if (const std::size_t longest = parts_->longest_token_characters; longest != 0) {
    return (utf8::count(text) + longest - 1) / longest;
  }
  if (parts_->longest_token == 0) {
    return 0;
  }
  std::size_t bytes = text.size();
  if (parts_->normalizer.nfc_only()) {
    // An ASCII character stays, or takes marks in: with them it becomes one byte longer for at most
    // four of theirs. Other characters shrink to no less than a quarter, alone or together.
    const auto ascii = static_cast<std::size_t>(
        std::ranges::count_if(text, [](char c) { return static_cast<unsigned char>(c) < 0x80; }));
    bytes = ascii + (text.size() - ascii) / 4;
  }
  return (bytes + parts_->longest_token - 1) / parts_->longest_token;
}

std::string Tokenizer::decode(std::span<const TokenId> ids, bool skip_special_tokens) const {
  if (const TokenDecoder* const decoder = this->decoder()) {
    std::vector<std::string_view> tokens;
    tokens.reserve(ids.size());
    for (const TokenId id : ids) {
      if (is_known(id) && (!skip_special_tokens || !is_special(id))) {
        tokens.push_back(decoder_token(id));
      }
    }
    return decoder->decode(tokens);
  }
  std::string bytes;
  for (const TokenId id : ids) {
    if (!skip_special_tokens || !is_special(id)) {
      bytes += token_bytes(id);
    }
  }
  return simdjson::validate_utf8(bytes.data(), bytes.size()) ? bytes : utf8::lossy(bytes);
}

std::size_t Tokenizer::vocab_size() const { return parts_->flags.size(); }

std::optional<TokenId> Tokenizer::token_to_id(std::string_view token) const {
  const std::optional<TokenId> id = parts_->added.find(token);
  return id ? id : parts_->path->find(token);
}

std::string_view Tokenizer::token_bytes(TokenId id) const {
  if (id >= parts_->flags.size()) {
    return {};
  }
  if ((parts_->flags[id] & kAdded) != 0) {
    return parts_->added_bytes.find(id)->second;
  }
  return parts_->path->bytes(id);
}

const TokenDecoder* Tokenizer::decoder() const { return parts_->path->decoder(); }

std::string_view Tokenizer::decoder_token(TokenId id) const {
  if (id >= parts_->flags.size() || !decoder()) {
    return {};
  }
  if ((parts_->flags[id] & kAdded) != 0) {
    return parts_->added.tokens().find(id)->second.text;
  }
  return parts_->path->decoder_token(id);
}

std::string Tokenizer::token_spelling(TokenId id) const {
  const auto& added = parts_->added.tokens();
  const auto found = added.find(id);
  return found != added.end() ? found->second.token.content : parts_->path->spelling(id);
}

bool Tokenizer::is_special(TokenId id) const {
  return id < parts_->flags.size() && (parts_->flags[id] & kSpecial) != 0;
}

bool Tokenizer::is_known(TokenId id) const {
  return id < parts_->flags.size() && (parts_->flags[id] & kKnown) != 0;
}

const AddedIds& Tokenizer::ids_around() const { return parts_->around; }

const LengthRules& Tokenizer::length_rules() const { return parts_->length_rules; }

const SpecialTokens& Tokenizer::special_tokens() const { return parts_->special_tokens; }

}  // namespace fairlead::tokenizer
