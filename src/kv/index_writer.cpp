#include "kv/index_writer.hpp"

namespace fairlead::kv {

void IndexWriter::stored(Tier tier, std::optional<EngineHash> parent,
                         std::span<const StoredBlock> blocks) {
  switch (index_.store(target_, tier, parent, blocks)) {
    case StoreOutcome::Stored: counters_.stored.add(1); break;
    case StoreOutcome::UnknownParent: counters_.unknown_parent.add(1); break;
    case StoreOutcome::Full: counters_.full.add(1); break;
    case StoreOutcome::UnknownTarget: counters_.unknown_target.add(1); break;
  }
}

void IndexWriter::removed(Tier tier, std::span<const EngineHash> blocks) {
  index_.remove(target_, tier, blocks);
}

void IndexWriter::cleared() { index_.clear(target_); }

}  // namespace fairlead::kv
