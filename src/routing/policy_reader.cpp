#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/yaml.hpp"
#include "routing/policy_classes.hpp"
#include "routing/policy_section.hpp"

// The policy file: PolicyConfig::parse and what it needs.

namespace fairlead::routing {
namespace {

constexpr std::size_t kMaxClasses = 256;
constexpr std::size_t kMaxBuckets = 64;
constexpr std::size_t kMaxModelBytes = 256;
constexpr std::uint64_t kMaxTokens = std::numeric_limits<std::uint32_t>::max();

}  // namespace

/// Reads one profile.
class PolicyReader {
 public:
  PolicyReader(PolicySection& section, PolicyFindings& findings)
      : section_(section), findings_(findings) {}

  std::shared_ptr<const PolicyProfile> read() {
    const std::string family = section_.required_name("default_policy_family");
    read_buckets();
    read_classes();
    if (findings_.any()) {
      return nullptr;
    }
    fill_table();
    if (const auto found = out_.families_.find(family); found != out_.families_.end()) {
      out_.default_family_ = found->second;
    } else {
      findings_.add(section_.field("default_policy_family"),
                    fmt::format("no class is of the family {}", shown(family)));
    }
    return findings_.any() ? nullptr : std::make_shared<const PolicyProfile>(std::move(out_));
  }

 private:
  // Where a class with a family has its place in the table.
  struct Cell {
    std::size_t family;
    std::size_t bucket;
    std::size_t index;  // of the class
  };

  static std::string at(std::string path, std::size_t index) {
    return fmt::format("{}[{}]", path, index);
  }

  void read_buckets() {
    const std::string path = section_.field("uncached_isl_buckets");
    out_.floors_.clear();
    for (const json::Value& value : section_.list("uncached_isl_buckets", kMaxBuckets)) {
      PolicySection bucket(value, at(path, out_.floors_.size()), findings_,
                           {"min_tokens", "bucket"});
      const std::uint64_t floor = bucket.required_count("min_tokens", 0, kMaxTokens);
      if (out_.floors_.empty() && floor != 0) {
        findings_.add(bucket.field("min_tokens"), "expected 0 for the first bucket");
      }
      if (!out_.floors_.empty() && floor <= out_.floors_.back()) {
        findings_.add(bucket.field("min_tokens"), "expected more than the bucket before");
      }
      std::string name = bucket.required_name("bucket");
      if (std::ranges::find(buckets_, name) != buckets_.end()) {
        findings_.add(bucket.field("bucket"), fmt::format("a second bucket {}", shown(name)));
      }
      out_.floors_.push_back(static_cast<std::uint32_t>(floor));
      buckets_.push_back(std::move(name));
    }
  }

  void read_classes() {
    const std::string path = section_.field("policy_classes");
    for (const json::Value& value : section_.list("policy_classes", kMaxClasses)) {
      PolicySection section(
          value, at(path, out_.classes_.size()), findings_,
          {"name", "policy_family", "cache_bucket", "queue_policy", "quantum",
           "prefill_busy_threshold", "prefill_busy_threshold_frac", "busy_worker_ratio",
           "request_queue_limit_per_worker", "raw_isl_token_queue_limit_per_worker",
           "cached_token_queue_limit_per_worker"});
      PolicyClass found = read_class(section);
      place(section, found.name);
      out_.classes_.push_back(std::move(found));
      if (findings_.any()) {
        return;
      }
    }
  }

  PolicyClass read_class(PolicySection& section) {
    PolicyClass out;
    out.name = section.required_name("name");
    if (std::ranges::find(out_.classes_, out.name, &PolicyClass::name) != out_.classes_.end()) {
      findings_.add(section.field("name"), fmt::format("a second class {}", shown(out.name)));
    }
    if (const auto text = section.text("queue_policy")) {
      if (const auto policy = parse_queue_policy(*text)) {
        out.policy = *policy;
      } else {
        findings_.add(section.field("queue_policy"), "expected fcfs, lcfs or wspt");
      }
    }
    out.quantum = static_cast<std::uint32_t>(section.required_count("quantum", 1, kMaxTokens));
    out.prefill_busy_threshold = section.count("prefill_busy_threshold");
    out.prefill_busy_threshold_frac = section.number("prefill_busy_threshold_frac");
    if (out.prefill_busy_threshold_frac && !(std::isfinite(*out.prefill_busy_threshold_frac) &&
                                             *out.prefill_busy_threshold_frac >= 0)) {
      findings_.add(section.field("prefill_busy_threshold_frac"),
                    "expected a finite number from 0");
    }
    out.busy_worker_ratio = section.number("busy_worker_ratio");
    if (out.busy_worker_ratio && !(*out.busy_worker_ratio > 0 && *out.busy_worker_ratio <= 1)) {
      findings_.add(section.field("busy_worker_ratio"), "expected a share above 0, at most 1");
    }
    if (out.busy_worker_ratio && !out.queues()) {
      findings_.add(section.field("busy_worker_ratio"),
                    "needs prefill_busy_threshold or prefill_busy_threshold_frac");
    }
    out.request_queue_limit_per_worker = section.count("request_queue_limit_per_worker");
    out.raw_isl_token_queue_limit_per_worker =
        section.count("raw_isl_token_queue_limit_per_worker");
    out.cached_token_queue_limit_per_worker = section.count("cached_token_queue_limit_per_worker");
    return out;
  }

  // Notes by which names the class that is read next to the others is found.
  void place(PolicySection& section, const std::string& name) {
    const std::size_t index = out_.classes_.size();
    if (section.has("policy_family") != section.has("cache_bucket")) {
      const bool lone = section.has("policy_family");
      findings_.add(
          section.field(lone ? "cache_bucket" : "policy_family"),
          fmt::format("missing: it goes with {}", lone ? "policy_family" : "cache_bucket"));
      return;
    }
    if (!section.has("policy_family")) {
      out_.explicit_.emplace(name, index);
      return;
    }
    const std::string family = section.name("policy_family").value_or(std::string());
    const std::string bucket = section.name("cache_bucket").value_or(std::string());
    const auto found = std::ranges::find(buckets_, bucket);
    if (found == buckets_.end()) {
      findings_.add(section.field("cache_bucket"), fmt::format("no bucket {}", shown(bucket)));
    }
    const std::size_t row = out_.families_.emplace(family, out_.families_.size()).first->second;
    cells_.push_back({.family = row,
                      .bucket = static_cast<std::size_t>(found - buckets_.begin()),
                      .index = index});
  }

  // Every family has exactly one class for every bucket, and no class's name means two things.
  void fill_table() {
    constexpr std::size_t kEmpty = std::numeric_limits<std::size_t>::max();
    const std::string path = section_.field("policy_classes");
    out_.table_.assign(out_.families_.size() * buckets_.size(), kEmpty);
    for (const Cell& cell : cells_) {
      std::size_t& entry = out_.table_[cell.family * buckets_.size() + cell.bucket];
      if (entry != kEmpty) {
        findings_.add(at(path, cell.index) + ".cache_bucket",
                      fmt::format("class {} has this family and bucket already",
                                  shown(out_.classes_[entry].name)));
      }
      entry = cell.index;
    }
    for (const auto& [family, row] : out_.families_) {
      for (std::size_t column = 0; column < buckets_.size(); ++column) {
        if (out_.table_[row * buckets_.size() + column] == kEmpty) {
          findings_.add(path, fmt::format("no class for family {} and bucket {}", shown(family),
                                          shown(buckets_[column])));
        }
      }
    }
    for (const auto& [name, index] : out_.explicit_) {
      if (out_.families_.contains(name)) {
        findings_.add(at(path, index) + ".name", fmt::format("{} is a family, too", shown(name)));
      }
    }
  }

  PolicySection& section_;
  PolicyFindings& findings_;
  PolicyProfile out_;
  std::vector<std::string> buckets_;
  std::vector<Cell> cells_;
};

Result<PolicyConfig> PolicyConfig::parse(std::string_view text, const QueueOptions& options) {
  if (text.size() > kMaxBytes) {
    return fail(ErrorCode::InvalidRequest,
                fmt::format("the policy file is larger than {} bytes", kMaxBytes));
  }
  const Result<json::Value> document = yaml::parse(text);
  if (!document) {
    return std::unexpected(document.error());
  }
  PolicyConfig out(options);
  PolicyFindings findings;
  PolicySection root(*document, "", findings,
                     {"default_policy_family", "uncached_isl_buckets", "policy_classes", "models"});
  const bool has_root = root.has("default_policy_family") || root.has("uncached_isl_buckets") ||
                        root.has("policy_classes");
  if (!findings.any() && has_root) {
    out.others_ = PolicyReader(root, findings).read();
  }
  const json::Value* models = document->find("models");
  if (!findings.any() && !models && !has_root) {
    findings.add("policy_classes", "missing, and there is no `models` either");
  }
  if (!findings.any() && models && !models->as_object()) {
    findings.add("models", fmt::format("expected a mapping, found {}", kind_of(*models)));
  }
  if (!findings.any() && models) {
    if (models->as_object()->empty()) {
      findings.add("models", "expected at least one model");
    }
    for (const auto& [name, value] : *models->as_object()) {
      const std::string path = fmt::format("models.{}", shown(name));
      if (name.empty() || name.size() > kMaxModelBytes) {
        findings.add(path, fmt::format("expected a name of 1 to {} bytes", kMaxModelBytes));
      }
      PolicySection section(value, path, findings,
                            {"default_policy_family", "uncached_isl_buckets", "policy_classes"});
      out.models_.insert_or_assign(name, PolicyReader(section, findings).read());
      if (findings.any()) {
        break;
      }
    }
  }
  if (findings.any()) {
    return std::unexpected(findings.take());
  }
  return out;
}

}  // namespace fairlead::routing
