#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "base/json.hpp"
#include "engine/client.hpp"
#include "fleet/endpoint.hpp"
#include "fleet/worker.hpp"

namespace fairlead::fleet {

/// Largest text that `parse_card` accepts.
inline constexpr std::size_t kMaxCardBytes = 1024 * 1024;

/// A model file that a card states the digest of. Where the file lies does not matter.
struct CardFile {
  std::string name;      ///< `tokenizer`, `model_info`, …, or `extra_files/NAME`.
  std::string checksum;  ///< As the card has it.
};

/// What is said about one worker, or about one adapter of it, before it is probed: a model card of
/// a discovery source, or what the flags say. Empty and zero mean that the engine's own answer
/// counts.
struct Card {
  std::string name_space;                           ///< Deployment boundary; may be empty.
  std::string component = "backend";                ///< Unit inside the namespace.
  std::string endpoint_name = "generate";           ///< Callable inside the component.
  std::string instance_id;                          ///< One life of one worker.
  engine::Backend backend = engine::Backend::Vllm;  ///< Which wire.
  Endpoint endpoint;                                ///< Where it listens; empty on adapter cards.
  std::string display_name;                         ///< Public model name.
  std::vector<std::string> aliases;                 ///< Further public names.
  std::string source_path;                          ///< Folder or hub id of the model's files.
  Role role = Role::Aggregated;                     ///< What the worker does.
  std::vector<std::vector<Role>> needs;  ///< Peers it cannot serve without: any of the lists.
  std::uint32_t context_length = 0;      ///< Tokens.
  std::uint32_t kv_block_size = 0;       ///< Tokens per KV block.
  std::uint32_t total_kv_blocks = 0;     ///< Per rank, of engines that do not tell.
  std::uint32_t max_batched_tokens = 0;  ///< Per step, of engines that do not tell.
  json::Value default_sampling;     ///< Object or null: sampling defaults, `extra_args` among them.
  engine::CapabilitySet denied;     ///< What the worker must not be asked for, whatever it reports.
  std::vector<std::string> taints;  ///< Labels that requests may require or prefer, sorted, each
                                    ///< once; those of topology domains included.
  std::string lora_name;            ///< Adapter cards: the adapter; empty on base cards.
  std::string model_suffix;         ///< Adapter cards: distinguishes them; empty on base cards.
  std::optional<std::uint32_t> max_gpu_lora_count;  ///< Adapter slots.
  std::vector<CardFile> files;  ///< In the order of their names, for the checksum.

  /// `{namespace}/{component}/{endpoint}/{instance}[/{suffix}]`: one immutable incarnation.
  std::string key() const;
  /// The key of the base card that an adapter card belongs to; of a base card its own.
  std::string base_key() const;
  /// True for the card of an adapter.
  bool is_adapter() const { return !lora_name.empty(); }
  /// Digest of everything that interchangeable workers must share: names, files, sampling defaults,
  /// lengths, role and needs; not identity, capabilities, address, parsers, adapters or taints.
  std::string checksum() const { return checksum_as(role, needs); }
  /// The same as if the card had this role and these needs.
  std::string checksum_as(Role as_role, const std::vector<std::vector<Role>>& as_needs) const;
};

/// Reads a card's JSON. `default_instance` names the instance of a base card that does not. Unknown
/// members are ignored. Errors are `InvalidRequest` and name the field, also as their `param`.
Result<Card> parse_card(std::string_view text, std::string_view default_instance);

}  // namespace fairlead::fleet
