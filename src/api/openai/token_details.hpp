#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "api/openai/request.hpp"
#include "chat/model_files.hpp"
#include "engine/request.hpp"
#include "serving/generation.hpp"
#include "tokenizer/tokenizer.hpp"

namespace fairlead::api::openai {

/// One prompt as far as its answer repeats it.
struct PromptDetails {
  std::vector<engine::TokenId> ids;  ///< Empty when nothing needs them.
  std::string echo;                  ///< Text in front of the output; empty without `echo`.
};

/// What an answer tells about tokens besides the text. Most requests ask for nothing of it.
struct TokenDetails {
  bool logprobs = false;           ///< An entry per token.
  std::uint32_t alternatives = 0;  ///< Tokens listed per entry; kAllCandidates = no limit.
  std::optional<std::uint32_t> prompt_alternatives;  ///< Likewise per prompt token, if reported.
  bool prompt_once = false;    ///< The first choice of each prompt has them for all.
  bool tokens_as_ids = false;  ///< `token_id:N` in place of every token's text.
  bool token_ids = false;      ///< The ids of prompt and output.
  bool echo = false;           ///< The prompt's text comes first, its entries too.
  NvextFields nvext;           ///< Repeated in `nvext`.
  std::shared_ptr<const tokenizer::Tokenizer> tokenizer;  ///< Never null.
  std::vector<PromptDetails> prompts;                     ///< One per prompt.
};

/// What the request asks to be told, the model's defaults applied: sets the engine's part of it in
/// `spec`, whose prompts are final. Null when there is nothing but text. `chat_echo` is the text of
/// the last message if it is to be repeated.
std::shared_ptr<const TokenDetails> resolve_details(const RequestBody& body,
                                                    const chat::SamplingDefaults& defaults,
                                                    const std::string& chat_echo,
                                                    serving::GenerationSpec& spec);

}  // namespace fairlead::api::openai
