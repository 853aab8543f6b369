#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "engine/client.hpp"

namespace fairlead::serving {

/// New output of one choice. Views are valid during the call only.
struct Delta {
  std::string_view text;                 ///< May be empty while a character is incomplete.
  std::span<const engine::TokenId> ids;  ///< The tokens received, stop token included.
  std::span<const engine::TokenLogprob> logprobs;  ///< One per id when asked for.
  /// Characters of the choice's decoded text before each id, text withheld for a stop string
  /// included; one per id when asked for.
  std::span<const std::uint32_t> offsets = {};
};

/// Why a choice ended, in the terms of the APIs.
enum class EndReason : std::uint8_t { Stop, Length };

/// The end of one choice.
struct ChoiceEnd {
  EndReason reason = EndReason::Stop;                                  ///< Why.
  std::variant<std::monostate, engine::TokenId, std::string> matched;  ///< The user's stop, if any.
};

/// Token counts of one choice or of a whole request.
struct Usage {
  std::uint64_t prompt_tokens = 0;      ///< Of the prompt.
  std::uint64_t completion_tokens = 0;  ///< Received, stop token included.
  std::uint64_t cached_tokens = 0;      ///< Prompt tokens the engine had cached.
  bool cached_known = false;            ///< The engine reported the cached count.
};

/// One API's form of an answer; interface for the pipeline, implementations per dialect. Called
/// inline in the request's reactor. Choice indexes run over prompts first: prompt × n + sequence.
class ResponseEncoder {
 public:
  virtual ~ResponseEncoder() = default;
  /// Facts about a prompt, before its first token.
  virtual void on_prompt(std::uint32_t choice, const engine::PromptInfo& info) {
    static_cast<void>(choice);
    static_cast<void>(info);
  }
  /// New output. `usage` counts this choice so far, this delta included.
  virtual void on_delta(std::uint32_t choice, const Delta& delta, const Usage& usage) = 0;
  /// A choice ended; no delta of it follows. `usage` is its total.
  virtual void on_end(std::uint32_t choice, const ChoiceEnd& end, const Usage& usage) = 0;
  /// `bytes` of messages of all choices' engines are gathered whose ends have not come.
  virtual void on_unfinished(std::size_t bytes) { static_cast<void>(bytes); }
  /// Called about once a second while the request runs: time for a keep-alive, if the dialect has
  /// one.
  virtual void on_tick(double seconds_since_output) { static_cast<void>(seconds_since_output); }
  /// True while the client takes less than arrives: the pipeline stops reading from the engines
  /// until `on_resume` is called.
  virtual bool congested() const { return false; }
  /// Why the answer cannot be given any more, or null. Looked at before the first delta, after
  /// each and after what is unfinished changed; what still comes behind it is dropped.
  virtual const Error* failure() const { return nullptr; }
  /// Where to call when the congestion ended.
  void set_on_resume(std::move_only_function<void()> callback) { on_resume_ = std::move(callback); }

 protected:
  std::move_only_function<void()> on_resume_;
};

}  // namespace fairlead::serving
