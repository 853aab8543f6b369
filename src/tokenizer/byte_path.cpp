#include "tokenizer/byte_path.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "tokenizer/bpe.hpp"
#include "tokenizer/byte_level.hpp"
#include "tokenizer/component_config.hpp"
#include "tokenizer/model_json.hpp"
#include "tokenizer/pre_tokenizer.hpp"
#include "tokenizer/rank_merges.hpp"

namespace fairlead::tokenizer {
namespace {

// What added tokens decode to.
enum class AddedText : std::uint8_t {
  Mapped,   // the bytes that their characters stand for, where all do
  Verbatim  // themselves
};

class BytePath final : public TextPath {
 public:
  BytePath(PreTokenizer pre_tokenizer, BpeModel model, AddedText added)
      : pre_tokenizer_(std::move(pre_tokenizer)), model_(std::move(model)), added_(added) {}

  Result<> encode(std::string_view text, std::size_t /*start_bytes*/, std::vector<TokenId>& out,
                  const std::stop_token& stop) const override {
    return pre_tokenizer_.encode(text, model_, out, stop);
  }
  std::optional<TokenId> find(std::string_view spelling) const override {
    return vocabulary().find_spelling(spelling);
  }
  bool contains(TokenId id) const override { return vocabulary().contains(id); }
  std::size_t size() const override { return vocabulary().size(); }
  std::size_t id_limit() const override { return vocabulary().id_limit(); }
  std::size_t longest_token() const override {
    if (!model_.keeps_bytes() || !pre_tokenizer_.keeps_text()) {
      return 0;
    }
    std::size_t longest = 1;
    for (std::size_t id = 0; id < id_limit(); ++id) {
      longest = std::max(longest, bytes(static_cast<TokenId>(id)).size());
    }
    return longest;
  }
  std::string spelling(TokenId id) const override { return vocabulary().spelling(id); }
  std::string_view bytes(TokenId id) const override { return vocabulary().bytes(id); }
  std::string added_bytes(std::string_view content) const override {
    std::string bytes;
    return added_ == AddedText::Mapped && append_byte_level_bytes(bytes, content)
               ? bytes
               : std::string(content);
  }

 private:
  const Vocabulary& vocabulary() const { return model_.vocabulary(); }

  PreTokenizer pre_tokenizer_;
  BpeModel model_;
  AddedText added_;
};

Result<BpeModel> read_byte_model(const ModelSource& source, CharBpeOptions options) {
  if (!source.vocab.present() || !source.merges.present()) {
    return fail(ErrorCode::InvalidRequest, "tokenizer.json: model without vocab and merges",
                "model");
  }
  Vocabulary vocabulary;
  if (Result<> read = each_token(
          source.vocab,
          [&](std::string_view spelling, TokenId id) { return vocabulary.add(spelling, id); });
      !read) {
    return std::unexpected(read.error());
  }
  if (Result<> finished = vocabulary.finish(); !finished) {
    return std::unexpected(finished.error());
  }
  Result<BpeModel> model = BpeModel::create(std::move(vocabulary),
                                            {.unk_token = std::move(options.unk_token).value_or(""),
                                             .fuse_unk = options.fuse_unk,
                                             .byte_fallback = options.byte_fallback,
                                             .ignore_merges = options.ignore_merges});
  if (!model) {
    return model;
  }
  const auto add_all = [&](std::span<const SpelledMerge> merges) {
    return model->add_merges(merges);
  };
  if (Result<> read = read_merges(source.merges, add_all); !read) {
    return std::unexpected(read.error());
  }
  model->finish();
  return model;
}

// Whether a decoder is `ByteLevel` and nothing else.
bool is_byte_level_decoder(const json::Value& config) {
  std::size_t steps = 0;
  bool byte_level = false;
  const Result<> walked =
      each_step("decoder", "decoders", config, [&](const ComponentConfig& step) {
        ++steps;
        byte_level = step.type() == "ByteLevel";
        return Result<>();
      });
  return walked && steps == 1 && byte_level;
}

}  // namespace

bool is_byte_level_bpe(const TokenizerFile& file) {
  const Result<ModelKind> kind = model_kind(file.model);
  if (!kind || *kind != ModelKind::Bpe || !is_byte_level_decoder(file.decoder) ||
      !PreTokenizer::can_do(file.pre_tokenizer)) {
    return false;
  }
  const Result<CharBpeOptions> options = read_bpe_options(file.model.options);
  return options && options->continuing_subword_prefix.empty() &&
         options->end_of_word_suffix.empty();
}

Result<std::unique_ptr<const TextPath>> make_byte_path(const TokenizerFile& file) {
  Result<CharBpeOptions> options = read_bpe_options(file.model.options);
  if (!options) {
    return std::unexpected(options.error());
  }
  Result<PreTokenizer> pre_tokenizer = PreTokenizer::create(file.pre_tokenizer);
  if (!pre_tokenizer) {
    return std::unexpected(pre_tokenizer.error());
  }
  Result<BpeModel> model = read_byte_model(file.model, std::move(*options));
  if (!model) {
    return std::unexpected(model.error());
  }
  return std::make_unique<const BytePath>(std::move(*pre_tokenizer), std::move(*model),
                                          AddedText::Mapped);
}

Result<std::unique_ptr<const TextPath>> make_rank_path(Vocabulary vocabulary, Scanner scanner) {
  for (int byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    if (!vocabulary.find_bytes({&c, 1})) {
      return fail(ErrorCode::InvalidRequest, fmt::format("no token for the byte 0x{:02X}", byte));
    }
  }
  // A word that is a token is that token, also when joining would not lead to it.
  Result<BpeModel> model = BpeModel::create(
      std::move(vocabulary),
      {.unk_token = {}, .fuse_unk = false, .byte_fallback = false, .ignore_merges = true});
  if (!model) {
    return std::unexpected(model.error());
  }
  for (const BpePaths::Pair& merge : merges_by_id(model->vocabulary())) {
    model->add_merge(merge);
  }
  model->finish();
  return std::make_unique<const BytePath>(PreTokenizer::of_scanner(scanner), std::move(*model),
                                          AddedText::Verbatim);
}

}  // namespace fairlead::tokenizer
