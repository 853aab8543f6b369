#pragma once

#include <cstdint>
#include <string>

#include "engine/client.hpp"
#include "tokenizer/tokenizer.hpp"

namespace fairlead::api::openai {

/// Writes tokens and their log-probabilities as JSON. Of alternatives the token itself comes first,
/// then the engine's candidates in their order, each id once, at most `limit` in all
/// (kAllCandidates = no limit). A token without a value has the lowest one and no alternatives.
class LogprobWriter {
 public:
  /// `tokenizer` outlives the writer. `tokens_as_ids` puts `token_id:N` in place of every text.
  LogprobWriter(const tokenizer::Tokenizer& tokenizer, bool tokens_as_ids)
      : tokenizer_(tokenizer), tokens_as_ids_(tokens_as_ids) {}

  /// The text of the token alone, special tokens spelled, parts of characters as U+FFFD.
  void token(std::string& out, engine::TokenId id) const;
  /// `{"token":…,"logprob":…,"bytes":…,"token_id":…,"top_logprobs":[…]}` of chat.
  void chat_entry(std::string& out, engine::TokenId id, const engine::TokenLogprob& entry,
                  std::uint32_t limit) const;
  /// `{TEXT:LOGPROB,…}` of completions. Of tokens with one text the first has the key.
  void text_map(std::string& out, engine::TokenId id, const engine::TokenLogprob& entry,
                std::uint32_t limit) const;
  /// `{"ID":{"logprob":…,"rank":…,"decoded_token":…},…}` of a prompt token.
  void id_map(std::string& out, engine::TokenId id, const engine::TokenLogprob& entry,
              std::uint32_t limit) const;

 private:
  void token_and_logprob(std::string& out, engine::TokenId id, float logprob) const;

  const tokenizer::Tokenizer& tokenizer_;
  bool tokens_as_ids_;
};

}  // namespace fairlead::api::openai
