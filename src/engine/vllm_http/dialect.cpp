#include "engine/vllm_http/dialect.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace fairlead::engine::vllm_http {
namespace {

using Frontend = Dialect::Frontend;
using ArgsKey = Dialect::ArgsKey;

constexpr std::array<std::pair<std::string_view, bool Dialect::*>, 3> kFlags{{
    {"logprob_token_ids", &Dialect::logprob_token_ids},
    {"bad_words_token_ids", &Dialect::bad_words_token_ids},
    {"logit_bias", &Dialect::logit_bias},
}};

constexpr std::string_view kRust = "rust";
constexpr std::string_view kPython = "python";

/// Takes the text before `mark`, and the mark.
std::string_view take_until(std::string_view& text, char mark) {
  const std::string_view head = text.substr(0, text.find(mark));
  text.remove_prefix(std::min(text.size(), head.size() + 1));
  return head;
}

}  // namespace

std::string_view args_key_name(ArgsKey key) {
  switch (key) {
    case ArgsKey::None: return {};
    case ArgsKey::ExtraArgs: return "extra_args";
    case ArgsKey::VllmXargs: return "vllm_xargs";
  }
  return {};
}

std::string dialect_text(const Dialect& dialect) {
  if (dialect.frontend == Frontend::Unknown) {
    return {};
  }
  std::string out(dialect.frontend == Frontend::Rust ? kRust : kPython);
  out += '/';
  out += args_key_name(dialect.args_key);
  for (const auto& [name, flag] : kFlags) {
    if (dialect.*flag) {
      out += '+';
      out += name;
    }
  }
  return out;
}

Dialect dialect_from_text(std::string_view text) {
  Dialect out;
  const std::string_view frontend = take_until(text, '/');
  if (frontend == kRust) {
    out.frontend = Frontend::Rust;
  } else if (frontend == kPython) {
    out.frontend = Frontend::Python;
  } else {
    return out;
  }
  const std::string_view key = take_until(text, '+');
  for (const ArgsKey candidate : {ArgsKey::ExtraArgs, ArgsKey::VllmXargs}) {
    if (args_key_name(candidate) == key) {
      out.args_key = candidate;
    }
  }
  while (!text.empty()) {
    const std::string_view found = take_until(text, '+');
    for (const auto& [name, flag] : kFlags) {
      if (name == found) {
        out.*flag = true;
      }
    }
  }
  return out;
}

}  // namespace fairlead::engine::vllm_http
