#include "engine/capability.hpp"

#include <algorithm>
#include <array>

namespace fairlead::engine {
namespace {

bool never(const GenerateRequest&) { return false; }

constexpr std::array<CapabilityTraits, kCapabilityCount> kTable{{
    {Capability::VllmXargs, "vllm_xargs", "vllm_xargs",
     [](const GenerateRequest& request) { return request.extra_args_required; },
     "vllm-http: which key of the token route takes extra arguments; the gRPC wires have none"},
    {Capability::LogprobTokenIds, "logprob_token_ids", "logprob_token_ids",
     [](const GenerateRequest& request) { return !request.output.logprob_token_ids.empty(); },
     "vllm: every wire generation; vllm-http: whether the token route knows the field"},
    {Capability::BadWordsTokenIds, "bad_words_token_ids", "bad_words_token_ids",
     [](const GenerateRequest& request) { return !request.sampling.bad_words.empty(); },
     "vllm: wire generation; vllm-http: whether the token route knows the field"},
    {Capability::PromptLogprobs, "prompt_logprobs", "prompt_logprobs",
     [](const GenerateRequest& request) { return request.output.prompt_logprobs.has_value(); },
     "vllm, vllm-http: always; sglang: unless it is a decode engine"},
    {Capability::Lora, "lora", "model",
     [](const GenerateRequest& request) { return !request.lora_name.empty(); },
     "vllm: ServerInfo; vllm-http, sglang: models with a parent are listed"},
    // Nothing asks for it yet: several sequences are several requests on every wire.
    {Capability::NativeN, "native_n", "n", never, "no token interface has it"},
    {Capability::Multimodal, "multimodal", "messages", never, "vllm: ModelInfo"},
    {Capability::Embeddings, "embeddings", "model", never, "no token interface has it"},
}};

static_assert([] {
  for (std::size_t i = 0; i < kTable.size(); ++i) {
    if (static_cast<std::size_t>(kTable[i].capability) != i) {
      return false;
    }
  }
  return true;
}());

}  // namespace

std::span<const CapabilityTraits> capability_table() { return kTable; }

const CapabilityTraits& capability_traits(Capability capability) {
  return kTable[static_cast<std::size_t>(capability)];
}

std::optional<Capability> find_capability(std::string_view name) {
  const auto found = std::ranges::find(kTable, name, &CapabilityTraits::name);
  return found == kTable.end() ? std::nullopt : std::optional(found->capability);
}

CapabilitySet required_capabilities(const GenerateRequest& request) {
  CapabilitySet out;
  for (const CapabilityTraits& row : kTable) {
    if (row.needed(request)) {
      out.add(row.capability);
    }
  }
  return out;
}

std::string capability_names(CapabilitySet set) {
  std::string out;
  for (const CapabilityTraits& row : kTable) {
    if (set.has(row.capability)) {
      out += out.empty() ? "" : ", ";
      out += row.name;
    }
  }
  return out;
}

std::string_view capability_field(CapabilitySet set) {
  for (const CapabilityTraits& row : kTable) {
    if (set.has(row.capability)) {
      return row.field;
    }
  }
  return {};
}

}  // namespace fairlead::engine
