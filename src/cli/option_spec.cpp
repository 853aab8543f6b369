#include "cli/option_spec.hpp"

#include <algorithm>
#include <vector>

namespace fairlead::cli {
namespace {

std::string upper_snake(std::string_view prefix, std::string_view name) {
  std::string out(prefix);
  for (const char c : name) {
    if (c == '-') {
      out.push_back('_');
    } else {
      out.push_back(c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c);
    }
  }
  return out;
}

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j < row.size(); ++j) {
    row[j] = j;
  }
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t above = row[j];
      const std::size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({above + 1, row[j - 1] + 1, replaced});
      diagonal = above;
    }
  }
  return row[b.size()];
}

}  // namespace

std::string environment_name(const OptionSpec& spec) { return upper_snake("FAIRLEAD_", spec.name); }

std::string dyn_environment_name(const OptionSpec& spec) {
  if (spec.dyn_name == "-") {
    return {};
  }
  return spec.dyn_name.empty() ? upper_snake("DYN_", spec.name) : std::string(spec.dyn_name);
}

const OptionSpec* find_option(std::span<const OptionSpec> table, std::string_view name) {
  for (const OptionSpec& spec : table) {
    if (spec.name == name || (!spec.alias.empty() && spec.alias == name)) {
      return &spec;
    }
  }
  return nullptr;
}

std::string closest_name(std::span<const std::string> names, std::string_view name) {
  // A name of 200 kB would make the distance slow and nothing is near it anyway.
  if (name.size() > 64) {
    return {};
  }
  std::string best;
  std::size_t best_distance = 1 + name.size() / 3;
  for (const std::string& candidate : names) {
    const std::size_t distance = edit_distance(name, candidate);
    if (distance <= best_distance) {
      best_distance = distance - std::min<std::size_t>(distance, 1);
      best = candidate;
      if (distance == 0) {
        break;
      }
    }
  }
  return best;
}

std::string closest_option(std::span<const OptionSpec> table, std::string_view name) {
  std::vector<std::string> names;
  for (const OptionSpec& spec : table) {
    names.emplace_back(spec.name);
    if (!spec.alias.empty()) {
      names.emplace_back(spec.alias);
    }
    if (spec.kind == OptionKind::Bool) {
      names.push_back("no-" + std::string(spec.name));
      if (!spec.alias.empty()) {
        names.push_back("no-" + std::string(spec.alias));
      }
    }
  }
  return closest_name(names, name);
}

std::vector<std::string> split_commas(std::string_view text) {
  std::vector<std::string> items;
  while (!text.empty()) {
    const std::size_t comma = text.find(',');
    std::string_view item = text.substr(0, comma);
    text = comma == std::string_view::npos ? std::string_view() : text.substr(comma + 1);
    while (!item.empty() && (item.front() == ' ' || item.front() == '\t')) {
      item.remove_prefix(1);
    }
    while (!item.empty() && (item.back() == ' ' || item.back() == '\t')) {
      item.remove_suffix(1);
    }
    if (!item.empty()) {
      items.emplace_back(item);
    }
  }
  return items;
}

}  // namespace fairlead::cli
