#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "mock/options.hpp"
#include "mock/sequence.hpp"
#include "mock/vllm_request.hpp"

namespace fairlead::mock {

/// How a generation ended, as FinishInfo tells it.
struct FinishFacts {
  /// Values of the wire's enum.
  enum class Reason : std::uint8_t { Length = 1, Stop = 2, Aborted = 3 };
  Reason reason = Reason::Length;          ///< Why.
  std::uint32_t output_tokens = 0;         ///< Total.
  std::uint32_t cached_tokens = 0;         ///< Prompt tokens from the cache.
  std::optional<TokenId> stop_token;       ///< At most one of these three.
  std::optional<TokenId> eos_token;        ///< The primary EOS.
  std::optional<std::string> stop_string;  ///< The matching string.
  std::string_view hand_off_engine;        ///< Not empty: transfer parameters go with it.
  std::size_t hand_off_blocks = 0;         ///< Blocks that they list.
};

/// Makes the messages of one generation. A token without logprobs is written by hand; everything
/// else goes through protobuf. Messages are valid until the next call.
class OutputEncoder {
 public:
  /// Both must outlive the encoder.
  OutputEncoder(const GenerateSpec& spec, const MockOptions& options);
  ~OutputEncoder();

  /// Whether all messages are gathered into one, to be had from `gathered`.
  void set_gather(bool gather) { gather_ = gather; }
  /// The first message.
  std::string_view prompt_info();
  /// Tokens and text of one step. `token` may be absent.
  std::string_view step(std::optional<TokenId> token, std::string_view text,
                        const FinishFacts* finish);
  /// The one message of a unary call.
  std::string_view gathered();

 private:
  struct Messages;
  std::string_view simple(TokenId token, std::string_view text);
  std::string_view serialize();

  const GenerateSpec& spec_;
  const MockOptions& options_;
  bool gather_ = false;
  std::uint64_t vocabulary_;
  std::string buffer_;
  std::unique_ptr<Messages> messages_;  // made when first needed
};

}  // namespace fairlead::mock
