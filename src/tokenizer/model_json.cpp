#include "tokenizer/model_json.hpp"

#include <fmt/format.h>
#include <simdjson.h>

#include <utility>
#include <vector>

#include "tokenizer/reference_number.hpp"
#include "tokenizer/unigram.hpp"
#include "tokenizer/vocabulary.hpp"
#include "tokenizer/word_level.hpp"
#include "tokenizer/word_piece.hpp"

namespace fairlead::tokenizer {

namespace {

namespace ondemand = simdjson::ondemand;

std::unexpected<Error> bad(std::string_view message, std::string part) {
  return fail(ErrorCode::InvalidRequest, fmt::format("tokenizer.json: {}: {}", part, message),
              std::move(part));
}

std::unexpected<Error> bad(simdjson::error_code code, std::string part) {
  return bad(simdjson::error_message(code), std::move(part));
}

std::unexpected<Error> in_file(Error error) {
  error.message = "tokenizer.json: " + error.message;
  return std::unexpected(std::move(error));
}

// One of the two large members, opened.
struct Reader {
  ondemand::parser parser;
  ondemand::document document;

  simdjson::error_code open(const JsonText& text) {
    return parser.iterate(simdjson::padded_string_view(text.json, text.capacity)).get(document);
  }
};

bool absent(const json::Value* value) { return value == nullptr || value->is_null(); }

// Option readers: an absent option keeps its value, `required` makes that an error.
Result<> read_text(const json::Object& options, std::string_view name, bool required,
                   std::optional<std::string>& text) {
  const json::Value* value = options.find(name);
  if (!required && absent(value)) {
    return {};
  }
  if (value == nullptr || value->as_string() == nullptr) {
    return bad(required ? "must be a string" : "must be a string or null",
               fmt::format("model.{}", name));
  }
  text = *value->as_string();
  return {};
}

Result<> read_flag(const json::Object& options, std::string_view name, bool null_allowed,
                   bool& flag) {
  const json::Value* value = options.find(name);
  if (value == nullptr || (null_allowed && value->is_null())) {
    return {};
  }
  if (value->as_bool() == nullptr) {
    return bad("must be true or false", fmt::format("model.{}", name));
  }
  flag = *value->as_bool();
  return {};
}

Result<std::size_t> read_size(const json::Value* value, std::string_view name) {
  if (value == nullptr || value->as_int() == nullptr || *value->as_int() < 0) {
    return bad("must be a whole number that is not negative", fmt::format("model.{}", name));
  }
  return static_cast<std::size_t>(*value->as_int());
}

Result<Spellings> read_spellings(const JsonText& vocab) {
  Spellings spellings;
  const Result<> read = each_token(vocab, [&spellings](std::string_view spelling, TokenId id) {
    return spellings.add(spelling, id);
  });
  if (!read) {
    return std::unexpected(read.error());
  }
  spellings.finish();
  return spellings;
}

Result<SpelledMerge> split_merge(std::string_view text) {
  const std::size_t space = text.find(' ');
  if (space == std::string_view::npos || text.find(' ', space + 1) != std::string_view::npos) {
    return bad(fmt::format("'{}' is not two tokens", text), "model.merges");
  }
  return SpelledMerge{text.substr(0, space), text.substr(space + 1)};
}

Result<SpelledMerge> merge_pair(ondemand::array pair) {
  std::string_view parts[2];
  std::size_t count = 0;
  for (auto element : pair) {
    if (count == 2) {
      return bad("a merge of more than two tokens", "model.merges");
    }
    if (const auto code = element.get_string().get(parts[count++])) {
      return bad(code, "model.merges");
    }
  }
  if (count != 2) {
    return bad("a merge of less than two tokens", "model.merges");
  }
  return SpelledMerge{parts[0], parts[1]};
}

Result<std::unique_ptr<const Model>> read_bpe(const ModelSource& source) {
  Result<CharBpeOptions> options = read_bpe_options(source.options);
  if (!options) {
    return std::unexpected(options.error());
  }
  if (!source.vocab.present() || !source.merges.present()) {
    return bad("a BPE model needs vocab and merges", "model");
  }
  Result<Spellings> vocabulary = read_spellings(source.vocab);
  if (!vocabulary) {
    return std::unexpected(vocabulary.error());
  }
  Result<std::unique_ptr<const Model>> model;
  const Result<> read =
      read_merges(source.merges, [&](std::span<const SpelledMerge> merges) -> Result<> {
        model = CharBpeModel::create(std::move(*vocabulary), merges, std::move(*options));
        return model ? Result<>() : Result<>(in_file(model.error()));
      });
  if (!read) {
    return std::unexpected(read.error());
  }
  return model;
}

Result<std::unique_ptr<const Model>> read_word_piece(const ModelSource& source) {
  std::optional<std::string> unk_token;
  std::optional<std::string> prefix;
  Result<> read = read_text(source.options, "unk_token", true, unk_token);
  if (read) {
    read = read_text(source.options, "continuing_subword_prefix", true, prefix);
  }
  if (!read) {
    return std::unexpected(read.error());
  }
  constexpr std::string_view kLimit = "max_input_chars_per_word";
  const Result<std::size_t> limit = read_size(source.options.find(kLimit), kLimit);
  if (!limit) {
    return std::unexpected(limit.error());
  }
  Result<Spellings> vocabulary = read_spellings(source.vocab);
  if (!vocabulary) {
    return std::unexpected(vocabulary.error());
  }
  return WordPieceModel::create(std::move(*vocabulary), {*unk_token, *prefix, *limit});
}

Result<std::unique_ptr<const Model>> read_word_level(const ModelSource& source) {
  std::optional<std::string> unk_token;
  if (Result<> read = read_text(source.options, "unk_token", true, unk_token); !read) {
    return std::unexpected(read.error());
  }
  Result<Spellings> vocabulary = read_spellings(source.vocab);
  if (!vocabulary) {
    return std::unexpected(vocabulary.error());
  }
  return WordLevelModel::create(std::move(*vocabulary), std::move(*unk_token));
}

Result<ScoredPiece> scored_piece(ondemand::array entry) {
  ScoredPiece piece{};
  std::size_t count = 0;
  for (auto element : entry) {
    ondemand::value value;
    double checked = 0;
    if (const auto code = std::move(element).get(value)) {
      return bad(code, "model.vocab");
    }
    if (count == 0) {
      if (const auto code = value.get_string().get(piece.text)) {
        return bad(code, "model.vocab");
      }
    } else if (count == 1) {
      const std::string_view text = value.raw_json_token();
      const auto code = value.get_double().get(checked);
      const std::optional<double> score =
          code == simdjson::SUCCESS ? reference_number(text) : std::nullopt;
      if (!score) {
        return bad(fmt::format("the score of '{}' is no number in range", piece.text),
                   "model.vocab");
      }
      piece.score = *score;
    }
    ++count;
  }
  if (count != 2) {
    return bad("an entry that is not a piece and its score", "model.vocab");
  }
  return piece;
}

Result<std::unique_ptr<const Model>> read_unigram(const ModelSource& source) {
  UnigramOptions options;
  if (const json::Value* value = source.options.find("unk_id"); !absent(value)) {
    const Result<std::size_t> id = read_size(value, "unk_id");
    if (!id) {
      return std::unexpected(id.error());
    }
    if (*id > kMaxTokenId) {
      return bad(fmt::format("token id {} is above {}", *id, kMaxTokenId), "model.unk_id");
    }
    options.unk_id = static_cast<TokenId>(*id);
  }
  if (Result<> read = read_flag(source.options, "byte_fallback", false, options.byte_fallback);
      !read) {
    return std::unexpected(read.error());
  }
  Reader reader;
  ondemand::array list;
  if (const auto code = reader.open(source.vocab)) {
    return bad(code, "model.vocab");
  }
  if (const auto code = reader.document.get_array().get(list)) {
    return bad(code, "model.vocab");
  }
  std::vector<ScoredPiece> pieces;
  for (auto element : list) {
    ondemand::array entry;
    if (const auto code = element.get_array().get(entry)) {
      return bad(code, "model.vocab");
    }
    const Result<ScoredPiece> piece = scored_piece(entry);
    if (!piece) {
      return std::unexpected(piece.error());
    }
    pieces.push_back(*piece);
  }
  Result<std::unique_ptr<const Model>> model = UnigramModel::create(pieces, options);
  return model ? std::move(model) : in_file(model.error());
}

}  // namespace

Result<ModelSource> open_model(const JsonText& model) {
  ModelSource source;
  const Result<> read =
      each_member(model, [&source](const std::string& key, const JsonText& member) -> Result<> {
        if (key == "vocab") {
          source.vocab = member;
        } else if (key == "merges") {
          source.merges = member;
        } else {
          Result<json::Value> value = json::parse(member.json);
          if (!value) {
            return bad(value.error().message, fmt::format("model.{}", key));
          }
          source.options.set(key, std::move(*value));
        }
        return {};
      });
  if (!read) {
    return std::unexpected(read.error());
  }
  return source;
}

Result<ModelKind> model_kind(const ModelSource& source) {
  constexpr std::pair<std::string_view, ModelKind> kKinds[] = {{"BPE", ModelKind::Bpe},
                                                               {"WordPiece", ModelKind::WordPiece},
                                                               {"WordLevel", ModelKind::WordLevel},
                                                               {"Unigram", ModelKind::Unigram}};
  if (const json::Value* type = source.options.find("type"); type != nullptr) {
    for (const auto& [name, kind] : kKinds) {
      if (type->as_string() != nullptr && *type->as_string() == name) {
        return kind;
      }
    }
    return fail(ErrorCode::UnsupportedField,
                fmt::format("tokenizer.json: model type {}", json::dump(*type)), "model.type");
  }
  if (source.merges.present()) {
    return ModelKind::Bpe;
  }
  if (!source.vocab.json.starts_with('{')) {
    return ModelKind::Unigram;
  }
  return source.options.find("continuing_subword_prefix") != nullptr &&
                 source.options.find("max_input_chars_per_word") != nullptr
             ? ModelKind::WordPiece
             : ModelKind::WordLevel;
}

Result<> each_token(const JsonText& vocab,
                    const std::function<Result<>(std::string_view, TokenId)>& visit) {
  Reader reader;
  ondemand::object object;
  if (const auto code = reader.open(vocab)) {
    return bad(code, "model.vocab");
  }
  if (const auto code = reader.document.get_object().get(object)) {
    return bad(code, "model.vocab");
  }
  for (auto result : object) {
    ondemand::field field;
    std::string_view spelling;
    std::uint64_t id = 0;
    if (const auto code = std::move(result).get(field)) {
      return bad(code, "model.vocab");
    }
    if (const auto code = field.unescaped_key().get(spelling)) {
      return bad(code, "model.vocab");
    }
    if (const auto code = field.value().get_uint64().get(id)) {
      return bad(code, "model.vocab");
    }
    if (id > kMaxTokenId) {
      return bad(fmt::format("token id {} is above {}", id, kMaxTokenId), "model.vocab");
    }
    if (Result<> added = visit(spelling, static_cast<TokenId>(id)); !added) {
      return in_file(added.error());
    }
  }
  return {};
}

Result<> read_merges(const JsonText& merges,
                     const std::function<Result<>(std::span<const SpelledMerge>)>& use) {
  Reader reader;
  ondemand::array list;
  if (const auto code = reader.open(merges)) {
    return bad(code, "model.merges");
  }
  if (const auto code = reader.document.get_array().get(list)) {
    return bad(code, "model.merges");
  }
  std::vector<SpelledMerge> found;
  std::optional<bool> pairs;
  for (auto element : list) {
    ondemand::value value;
    ondemand::array pair;
    std::string_view text;
    if (const auto code = std::move(element).get(value)) {
      return bad(code, "model.merges");
    }
    const bool is_text = value.get_string().get(text) == simdjson::SUCCESS;
    if (!is_text) {
      if (const auto code = value.get_array().get(pair)) {
        return bad(code, "model.merges");
      }
    }
    if (pairs.value_or(!is_text) == is_text) {
      return bad("strings and pairs are mixed", "model.merges");
    }
    pairs = !is_text;
    if (is_text && text.starts_with("#version")) {
      continue;  // the first line of merges.txt, kept by some converters
    }
    const Result<SpelledMerge> merge = is_text ? split_merge(text) : merge_pair(pair);
    if (!merge) {
      return std::unexpected(merge.error());
    }
    found.push_back(*merge);
  }
  return use(found);
}

Result<CharBpeOptions> read_bpe_options(const json::Object& options) {
  CharBpeOptions result;
  std::optional<std::string> prefix;
  std::optional<std::string> suffix;
  const auto read = [&]() -> Result<> {
    const std::pair<std::string_view, std::optional<std::string>*> texts[] = {
        {"unk_token", &result.unk_token},
        {"continuing_subword_prefix", &prefix},
        {"end_of_word_suffix", &suffix}};
    for (const auto& [name, text] : texts) {
      if (Result<> done = read_text(options, name, false, *text); !done) {
        return done;
      }
    }
    const std::pair<std::string_view, bool*> flags[] = {{"fuse_unk", &result.fuse_unk},
                                                        {"byte_fallback", &result.byte_fallback},
                                                        {"ignore_merges", &result.ignore_merges}};
    for (const auto& [name, flag] : flags) {
      if (Result<> done = read_flag(options, name, true, *flag); !done) {
        return done;
      }
    }
    const json::Value* dropout = options.find("dropout");
    double share = 0;
    if (absent(dropout) || (dropout->number(share) && static_cast<float>(share) == 0)) {
      return {};
    }
    return fail(
        ErrorCode::UnsupportedField,
        fmt::format("tokenizer.json: model.dropout {} makes results random", json::dump(*dropout)),
        "model.dropout");
  };
  if (Result<> done = read(); !done) {
    return std::unexpected(done.error());
  }
  result.continuing_subword_prefix = prefix.value_or("");
  result.end_of_word_suffix = suffix.value_or("");
  return result;
}

Result<std::unique_ptr<const Model>> read_model(const ModelSource& source) {
  const Result<ModelKind> kind = model_kind(source);
  if (!kind) {
    return std::unexpected(kind.error());
  }
  if (!source.vocab.present()) {
    return bad("no vocab", "model");
  }
  switch (*kind) {
    case ModelKind::Bpe: return read_bpe(source);
    case ModelKind::WordPiece: return read_word_piece(source);
    case ModelKind::WordLevel: return read_word_level(source);
    case ModelKind::Unigram: return read_unigram(source);
  }
  return bad("no known type", "model.type");
}

}  // namespace fairlead::tokenizer
