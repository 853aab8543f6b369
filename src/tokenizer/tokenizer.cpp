#include "tokenizer/tokenizer.hpp"

#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <fstream>

#include "base/json.hpp"
#include "base/utf8.hpp"
#include "tokenizer/byte_level.hpp"
#include "tokenizer/normalization.hpp"
#include "tokenizer/pre_tokenizer.hpp"
#include "tokenizer/tokenizer_config.hpp"
#include "tokenizer/tokenizer_json.hpp"

namespace fairlead::tokenizer {

namespace {

constexpr std::size_t kMaxTextBytes = std::size_t{1} << 30;
constexpr std::uintmax_t kMaxFileBytes = std::uintmax_t{1} << 30;

constexpr std::uint8_t kKnown = 1;
constexpr std::uint8_t kSpecial = 2;
constexpr std::uint8_t kAdded = 4;

Result<std::string> read_file(const std::filesystem::path& path) {
  std::error_code error;
  const std::uintmax_t size = std::filesystem::file_size(path, error);
  if (error) {
    return fail(ErrorCode::InvalidRequest,
                fmt::format("cannot read {}: {}", path.string(), error.message()));
  }
  if (size > kMaxFileBytes) {
    return fail(ErrorCode::InvalidRequest,
                fmt::format("{} is larger than {} bytes", path.string(), kMaxFileBytes));
  }
  std::string text;
  text.reserve(static_cast<std::size_t>(size) + simdjson::SIMDJSON_PADDING);
  text.resize(static_cast<std::size_t>(size));
  std::ifstream stream(path, std::ios::binary);
  if (!stream.read(text.data(), static_cast<std::streamsize>(size))) {
    return fail(ErrorCode::InvalidRequest, fmt::format("cannot read {}", path.string()));
  }
  return text;
}

}  // namespace

struct Tokenizer::Parts {
  bool nfc = false;
  std::optional<BpeModel> model;
  std::optional<PreTokenizer> pre_tokenizer;
  AddedVocabulary added;
  AddedIds around;
  SpecialTokens special_tokens;
  std::vector<std::uint8_t> flags;                       // by id
  std::unordered_map<TokenId, std::string> added_bytes;  // what added tokens decode to
  std::size_t longest_token = 0;                         // bytes of text in one token; 0: no limit

  static Result<std::unique_ptr<const Parts>> create(std::string tokenizer_json,
                                                     std::string_view config_json);
  Result<> encode_text(std::string_view text, std::vector<TokenId>& out,
                       const std::stop_token& stop) const;
  Result<> encode_normalized(std::string_view text, std::vector<TokenId>& out,
                             const std::stop_token& stop) const;
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

Result<std::unique_ptr<const Tokenizer::Parts>> Tokenizer::Parts::create(
    std::string tokenizer_json, std::string_view config_json) {
  Result<TokenizerFile> file = read_tokenizer_json(std::move(tokenizer_json));
  if (!file) {
    return std::unexpected(file.error());
  }
  Result<TokenizerConfig> config = read_tokenizer_config(config_json);
  if (!config) {
    return std::unexpected(config.error());
  }
  const Result<bool> nfc = read_normalizer(file->normalizer);
  Result<PreTokenizer> pre_tokenizer = PreTokenizer::create(file->pre_tokenizer);
  Result<AddedIds> around = read_post_processor(file->post_processor);
  const Result<> decoder = check_decoder(file->decoder);
  if (!nfc || !pre_tokenizer || !around || !decoder) {
    return std::unexpected(!nfc             ? nfc.error()
                           : !pre_tokenizer ? pre_tokenizer.error()
                           : !around        ? around.error()
                                            : decoder.error());
  }
  // Built now, so that no request waits for them.
  code_point_kinds();
  prepare_nfc();
  auto parts = std::make_unique<Parts>();
  parts->nfc = *nfc;
  parts->model = std::move(file->model);
  parts->pre_tokenizer = std::move(*pre_tokenizer);
  parts->around = std::move(*around);
  parts->special_tokens = std::move(config->special_tokens);

  const Vocabulary& vocabulary = parts->model->vocabulary();
  parts->added.add(file->added_tokens, vocabulary);
  std::erase_if(config->added_specials, [&](const AddedToken& token) {
    return parts->added.find(token.content).has_value();
  });
  parts->added.add(config->added_specials, vocabulary);
  parts->added.finish([&](const std::string& content) {
    std::string normalized;
    return parts->nfc && normalize_nfc(content, normalized) ? normalized : content;
  });
  parts->index_ids();
  parts->find_longest_token();
  return parts;
}

void Tokenizer::Parts::find_longest_token() {
  if (!model->keeps_bytes() || !pre_tokenizer->keeps_text()) {
    return;
  }
  std::size_t longest = 1;
  for (const auto& [id, entry] : added.tokens()) {
    if (entry.token.lstrip || entry.token.rstrip) {
      return;  // such a token takes any amount of white space
    }
    longest = std::max({longest, entry.token.content.size(), entry.text.size()});
  }
  const Vocabulary& vocabulary = model->vocabulary();
  for (std::size_t id = 0; id < vocabulary.id_limit(); ++id) {
    longest = std::max(longest, vocabulary.bytes(static_cast<TokenId>(id)).size());
  }
  longest_token = longest;
}

void Tokenizer::Parts::index_ids() {
  const Vocabulary& vocabulary = model->vocabulary();
  std::size_t limit = vocabulary.id_limit();
  for (const auto& [id, entry] : added.tokens()) {
    limit = std::max<std::size_t>(limit, std::size_t{id} + 1);
  }
  flags.assign(limit, 0);
  for (std::size_t id = 0; id < vocabulary.id_limit(); ++id) {
    flags[id] = vocabulary.contains(static_cast<TokenId>(id)) ? kKnown : 0;
  }
  for (const auto& [id, entry] : added.tokens()) {
    flags[id] = kKnown | kAdded | (added.is_special(entry.text) ? kSpecial : 0);
    std::string bytes;
    added_bytes[id] = append_byte_level_bytes(bytes, entry.text) ? bytes : entry.text;
  }
}

Result<> Tokenizer::Parts::encode_normalized(std::string_view text, std::vector<TokenId>& out,
                                             const std::stop_token& stop) const {
  if (added.none_normalized()) {
    return pre_tokenizer->encode(text, *model, out, stop);
  }
  std::vector<TextPart> pieces;
  added.split_normalized(text, pieces);
  for (const TextPart& piece : pieces) {
    if (piece.id) {
      out.push_back(*piece.id);
      continue;
    }
    const std::string_view part = text.substr(piece.span.begin, piece.span.end - piece.span.begin);
    if (Result<> done = pre_tokenizer->encode(part, *model, out, stop); !done) {
      return done;
    }
  }
  return {};
}

Result<> Tokenizer::Parts::encode_text(std::string_view text, std::vector<TokenId>& out,
                                       const std::stop_token& stop) const {
  std::vector<TextPart> pieces;
  added.split_raw(text, pieces);
  std::string normalized;
  for (const TextPart& piece : pieces) {
    if (piece.id) {
      out.push_back(*piece.id);
      continue;
    }
    std::string_view part = text.substr(piece.span.begin, piece.span.end - piece.span.begin);
    if (nfc && normalize_nfc(part, normalized)) {
      part = normalized;
    }
    if (Result<> done = encode_normalized(part, out, stop); !done) {
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
  Result<std::string> text = read_file(folder ? path / "tokenizer.json" : path);
  if (!text) {
    return std::unexpected(text.error());
  }
  std::string config;
  if (folder && std::filesystem::exists(path / "tokenizer_config.json", error)) {
    Result<std::string> read = read_file(path / "tokenizer_config.json");
    if (!read) {
      return std::unexpected(read.error());
    }
    config = std::move(*read);
  }
  Result<std::unique_ptr<const Parts>> parts = Parts::create(std::move(*text), config);
  if (!parts) {
    Error failure = parts.error();
    failure.message = fmt::format("{}: {}", path.string(), failure.message);
    return std::unexpected(std::move(failure));
  }
  return std::shared_ptr<const Tokenizer>(new Tokenizer(std::move(*parts)));
}

Result<std::shared_ptr<const Tokenizer>> Tokenizer::parse(std::string_view tokenizer_json,
                                                          std::string_view tokenizer_config_json) {
  Result<std::unique_ptr<const Parts>> parts =
      Parts::create(std::string(tokenizer_json), tokenizer_config_json);
  if (!parts) {
    return std::unexpected(parts.error());
  }
  return std::shared_ptr<const Tokenizer>(new Tokenizer(std::move(*parts)));
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
  if (parts_->longest_token == 0) {
    return 0;
  }
  std::size_t bytes = text.size();
  if (parts_->nfc) {
    // An ASCII character stays, or takes marks in: with them it becomes one byte longer for at most
    // four of theirs. Other characters shrink to no less than a quarter, alone or together.
    const auto ascii = static_cast<std::size_t>(
        std::ranges::count_if(text, [](char c) { return static_cast<unsigned char>(c) < 0x80; }));
    bytes = ascii + (text.size() - ascii) / 4;
  }
  return (bytes + parts_->longest_token - 1) / parts_->longest_token;
}

std::string Tokenizer::decode(std::span<const TokenId> ids, bool skip_special_tokens) const {
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
  return id ? id : parts_->model->vocabulary().find_spelling(token);
}

std::string_view Tokenizer::token_bytes(TokenId id) const {
  if (id >= parts_->flags.size()) {
    return {};
  }
  if ((parts_->flags[id] & kAdded) != 0) {
    return parts_->added_bytes.find(id)->second;
  }
  return parts_->model->vocabulary().bytes(id);
}

std::string Tokenizer::token_spelling(TokenId id) const {
  const auto& added = parts_->added.tokens();
  const auto found = added.find(id);
  return found != added.end() ? found->second.token.content
                              : parts_->model->vocabulary().spelling(id);
}

bool Tokenizer::is_special(TokenId id) const {
  return id < parts_->flags.size() && (parts_->flags[id] & kSpecial) != 0;
}

bool Tokenizer::is_known(TokenId id) const {
  return id < parts_->flags.size() && (parts_->flags[id] & kKnown) != 0;
}

const SpecialTokens& Tokenizer::special_tokens() const { return parts_->special_tokens; }

}  // namespace fairlead::tokenizer
