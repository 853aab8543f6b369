#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <optional>
#include <tuple>
#include <utility>

#include "base/utf8.hpp"
#include "fleet/card.hpp"
#include "fleet/engine_address.hpp"

namespace fairlead::fleet {
namespace {

constexpr int kMaxCardDepth = 32;
constexpr std::size_t kMaxNameBytes = 1024;
constexpr std::size_t kMaxPathBytes = 4096;
constexpr std::size_t kMaxChecksumBytes = 512;
constexpr std::size_t kMaxAliases = 64;
constexpr std::size_t kMaxAlternatives = 16;
constexpr std::size_t kMaxPeers = 8;
constexpr std::size_t kMaxExtraFiles = 256;
constexpr std::size_t kMaxTaints = 256;
constexpr std::size_t kMaxTaintBytes = 256;

// References to model files whose content every worker of a set must share.
constexpr auto kFileFields = std::to_array<std::string_view>(
    {"chat_template_file", "gen_config", "model_info", "prompt_formatter", "tokenizer"});

std::unexpected<Error> bad(std::string_view field, std::string_view reason) {
  return fail(ErrorCode::InvalidRequest, fmt::format("`{}` {}", field, reason), std::string(field));
}

bool has_control(std::string_view text) {
  return std::ranges::any_of(
      text, [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == '\x7f'; });
}

bool blank(std::string_view text) { return text.find_first_not_of(" \t") == text.npos; }

/// A segment of a card's key.
Result<> check_segment(std::string_view field, std::string_view text) {
  if (text.size() > kMaxNameBytes || has_control(text) || text.contains('/') ||
      !utf8::valid(text)) {
    return bad(field, fmt::format("must be at most {} bytes of UTF-8 without `/` and control "
                                  "characters",
                                  kMaxNameBytes));
  }
  return {};
}

/// Reads members of one object; null counts as absent. The first mistake is kept and everything
/// behind it is skipped, so that callers check once.
class Reader {
 public:
  Reader(const json::Value& object, std::string prefix)
      : object_(object), prefix_(std::move(prefix)) {}

  const json::Value* member(std::string_view field) const {
    const json::Value* value = object_.find(field);
    return error_ || !value || value->is_null() ? nullptr : value;
  }
  void text(std::string_view field, std::size_t limit, std::string& out) {
    const json::Value* value = member(field);
    if (!value) {
      return;
    }
    const std::string* text = value->as_string();
    if (!text) {
      return complain(field, "must be a string");
    }
    if (text->size() > limit || has_control(*text)) {
      return complain(field,
                      fmt::format("must be at most {} bytes without control characters", limit));
    }
    out = *text;
  }
  /// A name that, when it is given, is one.
  void name(std::string_view field, std::string& out) {
    text(field, kMaxNameBytes, out);
    if (member(field) && blank(out)) {
      complain(field, "must not be blank");
    }
  }
  void segment(std::string_view field, std::string& out) {
    text(field, kMaxNameBytes, out);
    if (const Result<> good = check_segment(prefix_ + std::string(field), out); !good) {
      error_ = error_ ? error_ : good.error();
    }
  }
  template <class T>  // std::uint32_t, or an optional of it
  void count(std::string_view field, T& out) {
    const json::Value* value = member(field);
    if (!value) {
      return;
    }
    const std::int64_t* number = value->as_int();
    if (!number || *number < 0 || *number > std::numeric_limits<std::uint32_t>::max()) {
      return complain(field, fmt::format("must be a whole number from 0 to {}",
                                         std::numeric_limits<std::uint32_t>::max()));
    }
    out = static_cast<std::uint32_t>(*number);
  }
  const json::Array* list(std::string_view field, std::size_t limit) {
    const json::Value* value = member(field);
    if (!value) {
      return nullptr;
    }
    const json::Array* list = value->as_array();
    if (!list || list->size() > limit) {
      complain(field, fmt::format("must be a list of at most {}", limit));
      return nullptr;
    }
    return list;
  }
  /// The object below a member, or null.
  const json::Value* object(std::string_view field) {
    const json::Value* value = member(field);
    if (value && !value->as_object()) {
      complain(field, "must be an object");
      return nullptr;
    }
    return value;
  }
  void complain(std::string_view field, std::string_view reason) {
    if (!error_) {
      error_ = bad(prefix_ + std::string(field), reason).error();
    }
  }
  void take_error(const Reader& inner) { error_ = error_ ? error_ : inner.error_; }
  const std::optional<Error>& error() const { return error_; }

 private:
  const json::Value& object_;
  std::string prefix_;
  std::optional<Error> error_;
};

/// `instance_id`: a text, or an unsigned number of 64 bits, which is named by its hexadecimal form.
void read_instance(Reader& reader, std::string& out) {
  const json::Value* value = reader.member("instance_id");
  if (!value) {
    return;
  }
  if (const std::int64_t* number = value->as_int(); number && *number >= 0) {
    out = fmt::format("{:x}", *number);
    return;
  }
  if (const json::BigInt* big = std::get_if<json::BigInt>(&value->storage())) {
    std::uint64_t number = 0;
    const char* end = big->digits.data() + big->digits.size();
    if (const auto [at, error] = std::from_chars(big->digits.data(), end, number);
        error == std::errc() && at == end) {
      out = fmt::format("{:x}", number);
      return;
    }
  }
  if (!value->as_string()) {
    return reader.complain("instance_id", "must be a string or an unsigned number of 64 bits");
  }
  reader.segment("instance_id", out);
  if (out.empty()) {
    reader.complain("instance_id", "must not be empty");
  }
}

void read_aliases(Reader& reader, Card& card) {
  const json::Array* list = reader.list("aliases", kMaxAliases);
  if (!list) {
    return;
  }
  for (const json::Value& element : *list) {
    const std::string* alias = element.as_string();
    if (!alias || alias->size() > kMaxNameBytes || has_control(*alias) || blank(*alias)) {
      return reader.complain("aliases",
                             fmt::format("must hold names of at most {} bytes", kMaxNameBytes));
    }
    // A name that is said twice is one name.
    if (*alias != card.display_name &&
        std::ranges::find(card.aliases, *alias) == card.aliases.end()) {
      card.aliases.push_back(*alias);
    }
  }
}

/// A role by its name in cards. Wrong ones are complained about.
std::optional<Role> read_role(Reader& reader, std::string_view field, const json::Value& value) {
  const std::string* text = value.as_string();
  if (text && *text == "aggregated") {
    return Role::Aggregated;
  }
  if (text && *text == "prefill") {
    return Role::Prefill;
  }
  if (text && *text == "decode") {
    return Role::Decode;
  }
  reader.complain(field, text && *text == "encode"
                             ? "names the role `encode`, which is not supported yet"
                             : "must name a role: aggregated, prefill or decode");
  return std::nullopt;
}

void read_roles(Reader& reader, Card& card) {
  if (const json::Value* type = reader.member("worker_type")) {
    card.role = read_role(reader, "worker_type", *type).value_or(Role::Aggregated);
  }
  const json::Array* alternatives = reader.list("needs", kMaxAlternatives);
  if (!alternatives) {
    return;
  }
  for (const json::Value& alternative : *alternatives) {
    const json::Array* peers = alternative.as_array();
    if (!peers || peers->size() > kMaxPeers) {
      return reader.complain("needs",
                             fmt::format("must hold lists of at most {} roles", kMaxPeers));
    }
    std::vector<Role> roles;
    for (const json::Value& peer : *peers) {
      const std::optional<Role> role = read_role(reader, "needs", peer);
      if (!role) {
        return;
      }
      roles.push_back(*role);
    }
    card.needs.push_back(std::move(roles));
  }
}

void read_adapter(Reader& reader, Card& card) {
  reader.segment("model_suffix", card.model_suffix);
  if (const json::Value* lora = reader.object("lora")) {
    Reader inner(*lora, "lora.");
    inner.name("name", card.lora_name);
    inner.count("max_gpu_lora_count", card.max_gpu_lora_count);
    if (!inner.member("name")) {
      inner.complain("name", "is missing");
    }
    reader.take_error(inner);
  }
  if (card.lora_name.empty() != card.model_suffix.empty()) {
    reader.complain(card.lora_name.empty() ? "lora" : "model_suffix",
                    "is missing: an adapter's card has both `model_suffix` and `lora`, a worker's "
                    "card neither");
  }
}

/// `taints`, and what `topology_domains` says as taints.
void read_taints(Reader& reader, Card& card) {
  const auto add = [&](std::string_view field, std::string taint) {
    if (taint.empty() || taint.size() > kMaxTaintBytes || has_control(taint)) {
      return reader.complain(
          field, fmt::format("must hold texts of 1 to {} bytes without control characters",
                             kMaxTaintBytes));
    }
    card.taints.push_back(std::move(taint));
  };
  static const json::Array kNone;
  const json::Array* taints = reader.list("taints", kMaxTaints);
  for (const json::Value& value : taints ? *taints : kNone) {
    const std::string* text = value.as_string();
    add("taints", text ? *text : std::string());
  }
  const json::Value* domains = reader.object("topology_domains");
  if (domains && domains->as_object()->size() > kMaxTaints) {
    return reader.complain("topology_domains", fmt::format("must hold at most {}", kMaxTaints));
  }
  const auto sound = [](std::string_view text) {
    return !text.empty() && !text.contains('=') && !blank(text.substr(0, 1)) &&
           !blank(text.substr(text.size() - 1));
  };
  for (const json::Member& member : domains ? *domains->as_object() : json::Object()) {
    const std::string* value = member.value.as_string();
    if (!value || !sound(member.key) || !sound(*value)) {
      return reader.complain("topology_domains",
                             "must hold names and values without `=` and spaces around them");
    }
    add("topology_domains", fmt::format("dynamo.topology/{}={}", member.key, *value));
  }
  std::ranges::sort(card.taints);
  const auto repeated = std::ranges::unique(card.taints);
  card.taints.erase(repeated.begin(), repeated.end());
}

void read_runtime(Reader& reader, Card& card) {
  const json::Value* config = reader.object("runtime_config");
  if (!config) {
    return;
  }
  Reader inner(*config, "runtime_config.");
  inner.count("context_length", card.context_length);
  inner.count("total_kv_blocks", card.total_kv_blocks);
  inner.count("max_num_batched_tokens", card.max_batched_tokens);
  if (card.lora_name.empty()) {
    inner.count("max_gpu_lora_count", card.max_gpu_lora_count);
  }
  read_taints(inner, card);
  if (const json::Value* data = inner.object("runtime_data")) {
    for (const engine::CapabilityTraits& row : engine::capability_table()) {
      const json::Value* value = data->find(row.name);
      const bool* yes = value ? value->as_bool() : nullptr;
      if (value && (!yes || !*yes)) {
        card.denied.add(row.capability);
      }
    }
  }
  reader.take_error(inner);
}

/// The `checksum` of a file reference: in the object itself or, where an object names the kind of
/// the file, in the one below. Null when there is none.
const std::string* find_checksum(const json::Value& reference) {
  if (const json::Value* checksum = reference.find("checksum")) {
    return checksum->as_string();
  }
  const json::Object* object = reference.as_object();
  if (!object || object->size() != 1) {
    return nullptr;
  }
  const json::Value* checksum = object->begin()->value.find("checksum");
  return checksum ? checksum->as_string() : nullptr;
}

void read_files(Reader& reader, Card& card) {
  const auto add = [&](std::string_view field, std::string name, const json::Value& reference) {
    const std::string* checksum = find_checksum(reference);
    if (checksum && checksum->size() > kMaxChecksumBytes) {
      return reader.complain(field, "has a checksum that is too long");
    }
    if (checksum) {
      card.files.push_back({std::move(name), *checksum});
    }
  };
  for (const std::string_view field : kFileFields) {
    if (const json::Value* reference = reader.member(field)) {
      add(field, std::string(field), *reference);
    }
  }
  static const json::Array kNone;
  const json::Array* extra = reader.list("extra_files", kMaxExtraFiles);
  for (const json::Value& reference : extra ? *extra : kNone) {
    const json::Value* path = reference.find("path");
    const std::string* text = path ? path->as_string() : nullptr;
    if (!text || text->size() > kMaxPathBytes) {
      return reader.complain("extra_files", "must hold objects with a `path` and a `checksum`");
    }
    add("extra_files", "extra_files/" + text->substr(text->rfind('/') + 1), reference);
  }
  std::ranges::sort(card.files, [](const CardFile& a, const CardFile& b) {
    return std::tie(a.name, a.checksum) < std::tie(b.name, b.checksum);
  });
}

void read_address(Reader& reader, Card& card) {
  std::optional<engine::Backend> named;
  if (const json::Value* value = reader.member("backend")) {
    const std::string* text = value->as_string();
    const Result<engine::Backend> backend =
        text ? parse_backend(*text) : fail(ErrorCode::InvalidRequest, "it must be a string");
    if (!backend) {
      return reader.complain("backend", "cannot be used: " + backend.error().message);
    }
    named = *backend;
  }
  std::string url;
  reader.text("url", kMaxPathBytes, url);
  if (!reader.member("url")) {
    if (!card.is_adapter()) {
      reader.complain("url", "is missing: where does the engine listen?");
    }
    return;
  }
  Result<EngineAddress> address = parse_engine_address(url);
  if (!address) {
    return reader.complain("url", "cannot be used: " + address.error().message);
  }
  if (named && address->backend && *named != *address->backend) {
    return reader.complain("url", "names another backend than `backend` does");
  }
  card.backend = address->backend.value_or(named.value_or(engine::Backend::Vllm));
  if (!card.is_adapter()) {  // an adapter is where its worker is
    card.endpoint = std::move(address->endpoint);
  }
}

}  // namespace

Result<Card> parse_card(std::string_view text, std::string_view default_instance) {
  if (text.size() > kMaxCardBytes) {
    return fail(ErrorCode::InvalidRequest,
                fmt::format("a card is at most {} bytes long", kMaxCardBytes));
  }
  const Result<json::Value> document = json::parse(text, kMaxCardDepth);
  if (!document) {
    return fail(ErrorCode::InvalidRequest, "not JSON: " + document.error().message);
  }
  if (!document->as_object()) {
    return fail(ErrorCode::InvalidRequest, "a card is a JSON object");
  }
  Card card;
  Reader reader(*document, "");
  reader.segment("namespace", card.name_space);
  reader.segment("component", card.component);
  reader.segment("endpoint", card.endpoint_name);
  read_instance(reader, card.instance_id);
  reader.name("display_name", card.display_name);
  reader.text("source_path", kMaxPathBytes, card.source_path);
  read_aliases(reader, card);
  read_roles(reader, card);
  reader.count("context_length", card.context_length);
  reader.count("architectural_max_context_length", card.context_length);
  reader.count("kv_cache_block_size", card.kv_block_size);
  read_adapter(reader, card);
  read_runtime(reader, card);
  read_files(reader, card);
  read_address(reader, card);
  if (const json::Value* sampling = reader.object("default_sampling_params")) {
    card.default_sampling = *sampling;
  }
  if (card.component.empty() || card.endpoint_name.empty()) {
    reader.complain(card.component.empty() ? "component" : "endpoint", "must not be empty");
  }
  if (card.instance_id.empty() && card.is_adapter()) {
    reader.complain("instance_id", "is missing: which worker has the adapter?");
  } else if (card.instance_id.empty()) {
    card.instance_id = default_instance;
    if (Result<> good = check_segment("instance_id", default_instance);
        !good || default_instance.empty()) {
      reader.complain("instance_id", "is missing, and there is no other name for the worker");
    }
  }
  if (reader.error()) {
    return std::unexpected(*reader.error());
  }
  if (card.display_name.empty()) {
    card.display_name = card.lora_name;
  }
  return card;
}

}  // namespace fairlead::fleet
