#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "api/openai/request.hpp"

namespace fairlead::api::openai {

/// Walks the top level of a chat or completions body; one method per field or kind of field. Part
/// of `parse_request`, which is its only user.
class RequestParser {
 public:
  /// `reader` and `options` outlive the parser.
  RequestParser(observe::Endpoint endpoint, JsonReader& reader, const ApiOptions& options,
                Purpose purpose);

  /// Parses the whole body.
  Result<RequestBody> parse(const std::string& body);

  /// One row of the field table: what to do when the field comes.
  struct Field {
    std::string_view name;                               ///< Key.
    std::uint8_t where;                                  ///< Set of the constants below.
    void (RequestParser::*read)(std::string_view name);  ///< Reads the value at hand.
  };
  static constexpr std::uint8_t kChat = 1;         ///< Field of chat.
  static constexpr std::uint8_t kCompletions = 2;  ///< Field of completions.
  static constexpr std::uint8_t kBoth = 3;         ///< Field of both.
  static constexpr std::uint8_t kPrompt = 4;       ///< Read also for Purpose::Tokenize.
  static constexpr std::uint8_t kTokenize = 8;     ///< Field of Purpose::Tokenize alone.

  /// All rows, by name.
  static std::span<const Field> fields();
  /// The field's row, or null when it has none of the bits of `where`.
  static const Field* find_field(std::string_view name, std::uint8_t where);

 private:
  friend struct FieldTable;

  // Fields that are acted on.
  void read_model(std::string_view name);
  void read_messages(std::string_view name);
  void read_prompt(std::string_view name);
  void read_stream(std::string_view name);
  void read_logprobs(std::string_view name);
  void read_top_logprobs(std::string_view name);
  void read_prompt_logprobs(std::string_view name);
  void read_logprob_token_ids(std::string_view name);
  void read_echo(std::string_view name);
  void read_tokens_as_ids(std::string_view name);
  void read_return_token_ids(std::string_view name);
  void read_stream_options(std::string_view name);
  void read_n(std::string_view name);
  void read_max_tokens(std::string_view name);
  void read_max_completion_tokens(std::string_view name);
  void read_min_tokens(std::string_view name);
  void read_temperature(std::string_view name);
  void read_top_p(std::string_view name);
  void read_top_k(std::string_view name);
  void read_min_p(std::string_view name);
  void read_presence_penalty(std::string_view name);
  void read_frequency_penalty(std::string_view name);
  void read_repetition_penalty(std::string_view name);
  void read_seed(std::string_view name);
  void read_logit_bias(std::string_view name);
  void read_allowed_token_ids(std::string_view name);
  void read_bad_words_token_ids(std::string_view name);
  void read_bad_words(std::string_view name);
  void read_stop(std::string_view name);
  void read_stop_token_ids(std::string_view name);
  void read_ignore_eos(std::string_view name);
  void read_include_stop(std::string_view name);
  void read_skip_special_tokens(std::string_view name);
  void read_add_special_tokens(std::string_view name);
  void read_truncate_prompt_tokens(std::string_view name);
  void read_truncation_side(std::string_view name);
  void read_priority(std::string_view name);
  void read_cache_salt(std::string_view name);
  void read_session_id(std::string_view name);
  void read_request_id(std::string_view name);
  void read_nvext(std::string_view name);
  void read_vllm_xargs(std::string_view name);
  void read_documents(std::string_view name);
  void read_template_kwargs(std::string_view name);
  void read_add_generation_prompt(std::string_view name);
  void read_continue_final_message(std::string_view name);
  void read_return_token_strs(std::string_view name);
  // Fields whose neutral values are accepted and whose others are not supported yet.
  void read_tools(std::string_view name);
  void read_tool_choice(std::string_view name);
  void read_response_format(std::string_view name);
  void read_best_of(std::string_view name);
  void read_modalities(std::string_view name);
  void read_suffix(std::string_view name);
  void only_null(std::string_view name);
  void only_false(std::string_view name);
  void only_true(std::string_view name);
  void only_zero(std::string_view name);
  void only_empty(std::string_view name);
  // Fields that cannot change the output.
  void accept_bool(std::string_view name);
  void accept_string(std::string_view name);
  void accept_number(std::string_view name);
  void accept_any(std::string_view name);
  void accept_stream_interval(std::string_view name);

  // Building blocks; each consumes the value at hand and fails the reader on a wrong one.
  bool take_null();
  bool expect(std::string_view name, JsonType type);
  void invalid(std::string_view name, std::string message);
  void unsupported(std::string_view name, std::string_view what = {});
  std::optional<bool> take_bool(std::string_view name);
  std::optional<std::string> take_string(std::string_view name);
  std::optional<std::int64_t> take_integer(std::string_view name, std::int64_t minimum,
                                           std::int64_t maximum);
  std::optional<float> take_number(std::string_view name, double minimum, double maximum);
  bool tokenizes() const { return purpose_ == Purpose::Tokenize; }
  void take_bool_into(std::string_view name, bool& out, bool fallback);
  engine::TokenId token_id(std::string_view name);
  void token_ids(std::string_view name, std::vector<engine::TokenId>& out);
  void read_nvext_member(std::string_view key);
  void read_agent_hints(std::string_view path);
  void read_annotations(std::string_view path);
  void read_constraints(std::string_view path);
  void read_required_taints(std::string_view path);
  void read_preferred_taints(std::string_view path);
  bool check_taint(std::string_view path, std::string_view taint, std::size_t before);
  void read_extra_fields(std::string_view path);

  void on_member(std::string_view key);
  Result<> check_whole();
  Result<> check_xargs_total(std::size_t choices) const;
  Result<> check_token_fields() const;

  JsonReader& reader_;
  const ApiOptions& options_;
  Purpose purpose_;
  std::uint8_t where_;
  RequestBody body_;
  std::vector<std::string> unknown_;
  bool has_messages_ = false;
  bool has_prompt_ = false;
  bool has_stream_options_ = false;
  std::optional<std::uint32_t> max_completion_tokens_;
  std::optional<std::int64_t> best_of_;
  std::vector<engine::TokenId> stop_ids_;  // from integer `stop`
  std::optional<std::uint64_t> backend_instance_id_;
  std::optional<std::uint64_t> decode_worker_id_;
  std::string nvext_salt_;
  std::size_t xargs_values_ = 0;  // scalars in `vllm_xargs`
};

}  // namespace fairlead::api::openai
