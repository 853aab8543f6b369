#include "tokenizer/general_path.hpp"

#include <cstdint>
#include <string>
#include <utility>

#include "tokenizer/byte_path.hpp"
#include "tokenizer/component_config.hpp"
#include "tokenizer/general_pre_tokenizer.hpp"
#include "tokenizer/model.hpp"
#include "tokenizer/model_json.hpp"

namespace fairlead::tokenizer {
namespace {

class GeneralPath final : public TextPath {
 public:
  GeneralPath(GeneralPreTokenizer pre_tokenizer, std::unique_ptr<const Model> model,
              TokenDecoder decoder)
      : pre_tokenizer_(std::move(pre_tokenizer)),
        model_(std::move(model)),
        decoder_(std::move(decoder)) {
    index_bytes();
  }

  Result<> encode(std::string_view text, std::size_t start_bytes, std::vector<TokenId>& out,
                  const std::stop_token& stop) const override {
    return pre_tokenizer_.split(
        text, start_bytes, [&](std::string_view piece) { return model_->encode(piece, out, stop); },
        stop);
  }
  std::optional<TokenId> find(std::string_view spelling) const override {
    return model_->find(spelling);
  }
  bool contains(TokenId id) const override { return model_->spelling(id).has_value(); }
  std::size_t size() const override { return model_->size(); }
  std::size_t id_limit() const override { return model_->id_limit(); }
  std::size_t longest_token() const override { return 0; }
  std::size_t longest_token_characters() const override {
    return pre_tokenizer_.keeps_text() ? model_->longest_token() : 0;
  }
  const TokenDecoder* decoder() const override { return &decoder_; }
  std::string_view decoder_token(TokenId id) const override {
    return model_->spelling(id).value_or(std::string_view());
  }
  std::string spelling(TokenId id) const override { return std::string(decoder_token(id)); }
  std::string_view bytes(TokenId id) const override {
    return std::size_t{id} + 1 < ends_.size()
               ? std::string_view(bytes_).substr(ends_[id], ends_[id + 1] - ends_[id])
               : std::string_view();
  }
  std::string added_bytes(std::string_view content) const override {
    return decoder_.token_bytes(content);
  }

 private:
  void index_bytes() {
    ends_.reserve(id_limit() + 1);
    ends_.push_back(0);
    for (std::size_t id = 0; id < id_limit(); ++id) {
      if (const auto spelling = model_->spelling(static_cast<TokenId>(id))) {
        bytes_ += decoder_.token_bytes(*spelling);
      }
      ends_.push_back(bytes_.size());
    }
  }

  GeneralPreTokenizer pre_tokenizer_;
  std::unique_ptr<const Model> model_;
  TokenDecoder decoder_;
  std::string bytes_;              // of all ids, one behind the other
  std::vector<std::size_t> ends_;  // 0, then where each id's end
};

}  // namespace

Result<std::unique_ptr<const TextPath>> make_general_path(const TokenizerFile& file) {
  Result<GeneralPreTokenizer> pre_tokenizer = GeneralPreTokenizer::create(file.pre_tokenizer);
  if (!pre_tokenizer) {
    return std::unexpected(pre_tokenizer.error());
  }
  Result<TokenDecoder> decoder = TokenDecoder::create(file.decoder);
  if (!decoder) {
    return std::unexpected(decoder.error());
  }
  Result<std::unique_ptr<const Model>> model = read_model(file.model);
  if (!model) {
    return std::unexpected(model.error());
  }
  return std::make_unique<const GeneralPath>(std::move(*pre_tokenizer), std::move(*model),
                                             std::move(*decoder));
}

Result<std::unique_ptr<const TextPath>> make_text_path(const TokenizerFile& file) {
  return is_byte_level_bpe(file) ? make_byte_path(file) : make_general_path(file);
}

}  // namespace fairlead::tokenizer
