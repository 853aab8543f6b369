#include "routing/active_sequences.hpp"

#include <algorithm>
#include <functional>
#include <ranges>
#include <utility>

namespace fairlead::routing {
namespace {

// Equal leading hashes of an edge and the rest of a prompt. A hash stands for everything before it,
// so that whatever precedes an equal pair is equal.
std::size_t common(std::span<const kv::SequenceHash> edge, std::span<const kv::SequenceHash> rest) {
  const std::size_t limit = std::min(edge.size(), rest.size());
  if (limit == 0 || edge[limit - 1] == rest[limit - 1]) {
    return limit;
  }
  const auto differs = [&](std::size_t i) { return edge[i] != rest[i]; };
  const auto positions = std::views::iota(std::size_t{0}, limit - 1);
  return *std::ranges::partition_point(positions, std::not_fn(differs));
}

}  // namespace

const ActiveSequences::Node::Use* ActiveSequences::Node::find(TargetIndex target) const {
  const auto found = std::ranges::lower_bound(uses_, target, {}, &Use::target);
  return found != uses_.end() && found->target == target ? &*found : nullptr;
}

// True when the target is new here.
bool ActiveSequences::Node::enter(TargetIndex target) {
  const auto found = std::ranges::lower_bound(uses_, target, {}, &Use::target);
  if (found != uses_.end() && found->target == target) {
    ++found->count;
    return false;
  }
  uses_.insert(found, {.target = target, .count = 1});
  return true;
}

// True when the target is no longer here.
bool ActiveSequences::Node::leave(TargetIndex target) {
  const auto found = std::ranges::lower_bound(uses_, target, {}, &Use::target);
  if (--found->count > 0) {
    return false;
  }
  uses_.erase(found);
  return true;
}

ActiveSequences::ActiveSequences() = default;
ActiveSequences::~ActiveSequences() = default;

void ActiveSequences::match(std::span<const kv::SequenceHash> prompt, Path& path) const {
  path.clear();
  std::size_t at = 0;
  while (at < prompt.size()) {
    const auto found = nodes_.find(prompt[at]);
    if (found == nodes_.end() || found->second->begin_ != at ||
        found->second->parent_ != (path.empty() ? nullptr : path.back().node)) {
      return;
    }
    Node* node = found->second.get();
    const std::size_t equal = common(node->edge_, prompt.subspan(at));
    at += equal;
    path.push_back({.node = node, .matched = static_cast<std::uint32_t>(at)});
    if (equal < node->edge_.size()) {
      return;
    }
  }
}

std::uint32_t ActiveSequences::depth(const Path& path, TargetIndex target) {
  for (const Step& step : std::views::reverse(path)) {
    if (step.node->find(target)) {
      return step.matched;
    }
  }
  return 0;
}

std::size_t ActiveSequences::spread(const Path& path, std::size_t limit) {
  std::size_t total = 0;
  for (const Step& step : path) {
    total += step.node->uses_.size();
    if (total > limit) {
      break;
    }
  }
  return total;
}

// The upper part of the edge becomes a node of its own. The lower one stays the object it was,
// which running requests name as their leaf.
ActiveSequences::Node* ActiveSequences::split(Node* node, std::size_t at) {
  auto upper = std::make_unique<Node>();
  Node* made = upper.get();
  const auto cut = node->edge_.begin() + static_cast<std::ptrdiff_t>(at);
  made->edge_.assign(node->edge_.begin(), cut);
  made->uses_ = node->uses_;
  made->begin_ = node->begin_;
  made->parent_ = node->parent_;
  made->next_ = node->next_;
  made->previous_ = node->previous_;
  made->first_child_ = node;
  if (made->next_) {
    made->next_->previous_ = made;
  }
  if (made->previous_) {
    made->previous_->next_ = made;
  } else if (made->parent_) {
    made->parent_->first_child_ = made;
  }
  auto& place = nodes_[made->edge_.front()];
  std::unique_ptr<Node> lower = std::exchange(place, std::move(upper));
  lower->edge_.erase(lower->edge_.begin(), cut);
  lower->begin_ += static_cast<std::uint32_t>(at);
  lower->parent_ = made;
  lower->next_ = lower->previous_ = nullptr;
  const kv::SequenceHash head = lower->edge_.front();
  nodes_.emplace(head, std::move(lower));
  return made;
}

ActiveSequences::Added ActiveSequences::add(std::span<const kv::SequenceHash> prompt, Path& path,
                                            TargetIndex target) {
  Added out;
  if (!path.empty()) {
    Step& last = path.back();
    const std::size_t inside = last.matched - last.node->begin_;
    if (inside < last.node->edge_.size()) {
      if (nodes_.contains(last.node->edge_[inside])) {
        path.pop_back();  // a conflict: the lower part could not be found again
      } else {
        last.node = split(last.node, inside);
      }
    }
  }
  for (const Step& step : path) {
    if (step.node->enter(target)) {
      out.fresh += static_cast<std::uint32_t>(step.node->edge_.size());
    }
    out.leaf = step.node;
  }
  const std::size_t known = path.empty() ? 0 : path.back().matched;
  if (known < prompt.size()) {
    const auto rest = prompt.subspan(known);
    const auto [place, fresh] = nodes_.try_emplace(rest.front());
    if (!fresh) {
      out.untracked = static_cast<std::uint32_t>(rest.size());
    } else {
      place->second = std::make_unique<Node>();
      Node* node = place->second.get();
      node->edge_.assign(rest.begin(), rest.end());
      node->begin_ = static_cast<std::uint32_t>(known);
      node->uses_.push_back({.target = target, .count = 1});
      node->parent_ = out.leaf;
      if (node->parent_) {
        node->next_ = std::exchange(node->parent_->first_child_, node);
        if (node->next_) {
          node->next_->previous_ = node;
        }
      }
      out.leaf = node;
      out.fresh += static_cast<std::uint32_t>(rest.size());
    }
  }
  if (out.leaf) {
    ++out.leaf->ends_;
  }
  return out;
}

void ActiveSequences::detach(Node* node) {
  if (node->next_) {
    node->next_->previous_ = node->previous_;
  }
  if (node->previous_) {
    node->previous_->next_ = node->next_;
  } else if (node->parent_) {
    node->parent_->first_child_ = node->next_;
  }
  const kv::SequenceHash head = node->edge_.front();
  nodes_.erase(head);
}

// The child takes over the node's edge and place: running requests may name it as their leaf, while
// nobody names the node.
void ActiveSequences::merge_into_child(Node* node) {
  Node* child = node->first_child_;
  const kv::SequenceHash child_head = child->edge_.front();
  child->edge_.insert(child->edge_.begin(), node->edge_.begin(), node->edge_.end());
  child->begin_ = node->begin_;
  child->parent_ = node->parent_;
  child->next_ = node->next_;
  child->previous_ = node->previous_;
  if (child->next_) {
    child->next_->previous_ = child;
  }
  if (child->previous_) {
    child->previous_->next_ = child;
  } else if (child->parent_) {
    child->parent_->first_child_ = child;
  }
  const auto owner = nodes_.find(child_head);
  std::unique_ptr<Node> kept = std::move(owner->second);
  nodes_.erase(owner);
  const auto place = nodes_.find(kept->edge_.front());
  place->second = std::move(kept);  // the node is gone
}

std::uint32_t ActiveSequences::remove(Node* leaf, TargetIndex target) {
  std::uint32_t freed = 0;
  --leaf->ends_;
  for (Node* node = leaf; node; node = node->parent_) {
    if (node->leave(target)) {
      freed += static_cast<std::uint32_t>(node->edge_.size());
    }
  }
  Node* lowest = leaf;
  while (lowest && lowest->uses_.empty()) {
    Node* parent = lowest->parent_;
    detach(lowest);
    lowest = parent;
  }
  if (lowest && lowest->ends_ == 0 && lowest->first_child_ && !lowest->first_child_->next_) {
    merge_into_child(lowest);
  }
  return freed;
}

std::uint32_t ActiveSequences::unshared(const Node* leaf, TargetIndex target) {
  std::uint32_t blocks = 0;
  for (const Node* node = leaf; node; node = node->parent_) {
    const Node::Use* use = node->find(target);
    if (!use || use->count > 1) {
      break;
    }
    blocks += static_cast<std::uint32_t>(node->edge_.size());
  }
  return blocks;
}

}  // namespace fairlead::routing
