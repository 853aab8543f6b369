#include "engine/vllm_http/field_probe.hpp"

#include <fmt/format.h>

#include <array>

namespace fairlead::engine::vllm_http {
namespace {

using ArgsKey = Dialect::ArgsKey;

// vllm-rs 0.33.0 takes either key of extra arguments, but not both; the first one found is used.
constexpr std::array<ProbedField, 5> kFields{{
    {"extra_args", R"("?")", "{}"},
    {"vllm_xargs", R"("?")", "{}"},
    {"logprob_token_ids", R"("?")", "[0]"},
    {"bad_words_token_ids", R"("?")", "[[0]]"},
    // vllm-rs knows it but cannot read any: ids as member names are texts to it.
    {"logit_bias", R"("?")", R"({"0":0.5})"},
}};

}  // namespace

std::span<const ProbedField> probed_fields() { return kFields; }

std::string empty_request(std::string_view name, std::string_view value) {
  // The prompt is first, so that its place in the text is the same in every request. Should a
  // server take it all the same, it makes one token.
  return name.empty()
             ? R"({"token_ids":[],"sampling_params":{"max_tokens":1}})"
             : fmt::format(R"({{"token_ids":[],"sampling_params":{{"max_tokens":1,"{}":{}}}}})",
                           name, value);
}

bool field_is_taken(const Refusal& without, const Refusal& wrong, const Refusal& right) {
  return wrong != without && right == without;
}

void set_field(Dialect& dialect, std::string_view name) {
  if (name == "logprob_token_ids") {
    dialect.logprob_token_ids = true;
  } else if (name == "bad_words_token_ids") {
    dialect.bad_words_token_ids = true;
  } else if (name == "logit_bias") {
    dialect.logit_bias = true;
  } else if (dialect.args_key == ArgsKey::None) {
    dialect.args_key =
        name == args_key_name(ArgsKey::ExtraArgs) ? ArgsKey::ExtraArgs : ArgsKey::VllmXargs;
  }
}

void assume_fields(Dialect& dialect) {
  const bool python = dialect.frontend == Dialect::Frontend::Python;
  dialect.args_key = python ? ArgsKey::ExtraArgs : ArgsKey::VllmXargs;
  dialect.logprob_token_ids = true;
  dialect.bad_words_token_ids = false;
  dialect.logit_bias = python;
}

}  // namespace fairlead::engine::vllm_http
