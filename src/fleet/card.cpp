#include "fleet/card.hpp"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>

namespace fairlead::fleet {
namespace {

/// Collects parts so that no two different lists of parts give the same bytes: every part has its
/// length before it.
class Digest {
 public:
  void text(std::string_view part) {
    number(part.size());
    bytes_ += part;
  }
  void number(std::uint64_t value) {
    for (int shift = 56; shift >= 0; shift -= 8) {
      bytes_ += static_cast<char>((value >> shift) & 0xff);
    }
  }
  std::string finish() const {
    const XXH128_hash_t hash = XXH3_128bits(bytes_.data(), bytes_.size());
    return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
  }

 private:
  std::string bytes_;
};

/// The document with every object's members in the order of their keys.
json::Value sorted(const json::Value& value) {
  if (const json::Array* array = value.as_array()) {
    json::Array out;
    for (const json::Value& element : *array) {
      out.push_back(sorted(element));
    }
    return out;
  }
  if (const json::Object* object = value.as_object()) {
    std::vector<json::Member> members;
    for (const json::Member& member : *object) {
      members.push_back({member.key, sorted(member.value)});
    }
    std::ranges::sort(members, {}, &json::Member::key);
    return json::Object(std::move(members));
  }
  return value;
}

}  // namespace

std::string Card::key() const {
  std::string out = base_key();
  if (!model_suffix.empty()) {
    out += '/';
    out += model_suffix;
  }
  return out;
}

std::string Card::base_key() const {
  return fmt::format("{}/{}/{}/{}", name_space, component, endpoint_name, instance_id);
}

std::string Card::checksum_as(Role as_role, const std::vector<std::vector<Role>>& as_needs) const {
  Digest digest;
  digest.text(display_name);
  digest.text(source_path);
  digest.number(files.size());
  for (const CardFile& file : files) {
    digest.text(file.name);
    digest.text(file.checksum);
  }
  digest.text(default_sampling.is_null() ? "" : json::dump(sorted(default_sampling)));
  digest.number(context_length);
  digest.number(kv_block_size);
  digest.number(static_cast<std::uint64_t>(as_role));
  digest.number(as_needs.size());
  for (const std::vector<Role>& alternative : as_needs) {
    digest.number(alternative.size());
    for (const Role peer : alternative) {
      digest.number(static_cast<std::uint64_t>(peer));
    }
  }
  digest.number(aliases.size());
  for (const std::string& alias : aliases) {
    digest.text(alias);
  }
  return digest.finish();
}

}  // namespace fairlead::fleet
