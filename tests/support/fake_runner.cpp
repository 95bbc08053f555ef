#include "tests/support/fake_runner.h"

#include <fmt/core.h>

#include <algorithm>
#include <limits>
#include <set>
#include <stdexcept>
#include <utility>

#include "engine/block_tables.h"

namespace tokenmill::test {
namespace {

constexpr int32_t kPoison = -1;  // what a block holds where nothing has been written since it was handed out

template <typename... Args>
void require(bool condition, fmt::format_string<Args...> format, Args&&... args) {
  if (!condition) throw std::logic_error(fmt::format(format, std::forward<Args>(args)...));
}

uint64_t fold(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * 0xff51afd7ed558ccdu;
  return hash ^ (hash >> 32);
}

uint64_t hash_of(uint64_t hash, const std::vector<std::vector<int32_t>>& shown) {
  for (const std::vector<int32_t>& tokens : shown) {
    hash = fold(hash, tokens.size());
    for (const int32_t id : tokens) hash = fold(hash, static_cast<uint64_t>(static_cast<int64_t>(id)));
  }
  return hash;
}

float logprob_of(uint64_t hash) { return -static_cast<float>(hash >> 40) / static_cast<float>(1 << 24); }

std::vector<std::vector<int32_t>> shown_by(const std::vector<KvSpec>& groups, std::span<const int32_t> token_ids) {
  std::vector<std::vector<int32_t>> shown;
  const auto position = static_cast<int64_t>(token_ids.size()) - 1;
  for (const KvSpec& spec : groups)
    shown.emplace_back(token_ids.begin() + spec.first_visible(position), token_ids.end());
  return shown;
}

}  // namespace

SampledToken FakeModel::next(const std::vector<std::vector<int32_t>>& shown, uint64_t key,
                             const StepConstraints& constraints) const {
  const uint64_t hash = hash_of(fold(seed, key), shown);
  SampledToken token;
  token.token_id = static_cast<int32_t>((hash >> 8) % static_cast<uint64_t>(vocab_size));
  token.logprob = logprob_of(hash);
  const bool fails = fails_one_in > 0 && fold(hash, 1) % static_cast<uint64_t>(fails_one_in) == 0;
  if (fails) token.status = SampleStatus::kNonFinite;
  const std::set<int32_t> masked(constraints.masked_token_ids.begin(), constraints.masked_token_ids.end());
  if (static_cast<int64_t>(masked.size()) >= vocab_size) token.status = SampleStatus::kNothingAllowed;
  while (token.status == SampleStatus::kFine && masked.contains(token.token_id))
    token.token_id = static_cast<int32_t>((token.token_id + 1) % vocab_size);
  if (constraints.forced_token_id >= 0) token.token_id = constraints.forced_token_id;
  return token;
}

SampledToken FakeModel::next(std::span<const int32_t> token_ids, uint64_t key,
                             const StepConstraints& constraints) const {
  return next(shown_by(kv_groups, token_ids), key, constraints);
}

SampledToken FakeModel::score(const std::vector<std::vector<int32_t>>& shown, int32_t token_id,
                              int32_t num_logprobs) const {
  const uint64_t hash = fold(hash_of(fold(seed, 77), shown), static_cast<uint64_t>(token_id));
  SampledToken token{.token_id = token_id, .logprob = logprob_of(hash), .rank = static_cast<int32_t>(hash % 100) + 1};
  for (int32_t i = 0; i < num_logprobs; ++i) token.top.push_back({i, logprob_of(fold(hash, 5)), i + 1});
  return token;
}

SampledToken FakeModel::score(std::span<const int32_t> token_ids, int32_t token_id, int32_t num_logprobs) const {
  return score(shown_by(kv_groups, token_ids), token_id, num_logprobs);
}

float FakeModel::hidden(const std::vector<std::vector<int32_t>>& shown) const {
  return static_cast<float>(hash_of(fold(seed, 78), shown) % 1000);
}

float FakeModel::hidden(std::span<const int32_t> token_ids) const { return hidden(shown_by(kv_groups, token_ids)); }

FakeRunner::FakeRunner(const FakeModel& model, const RunnerLimits& limits, bool allow_rewinds)
    : model_(model), limits_(limits), allow_rewinds_(allow_rewinds), slots_(static_cast<size_t>(limits.max_num_seqs)) {
  require(limits.kv_groups == model.kv_groups && limits.vocab_size == model.vocab_size, "limits are not the model's");
  for (size_t g = 0; g < limits.kv_groups.size(); ++g) {
    Block block;
    block.token_ids.assign(static_cast<size_t>(limits.kv_groups[g].block_size), kPoison);
    blocks_.emplace_back(static_cast<size_t>(limits.num_blocks[g]), block);
  }
}

Ticket FakeRunner::launch(const StepPlan& plan) {
  require(num_steps_in_flight() < limits_.max_steps_in_flight, "step {} is one too many in flight", plan.step_id);
  require(plan.step_id > last_launched_step_, "step {} after step {}", plan.step_id, last_launched_step_);
  require(plan.num_tokens() <= limits_.max_num_batched_tokens, "step {} has {} tokens", plan.step_id,
          plan.num_tokens());
  require(plan.num_logits_rows() <= limits_.max_logits_rows, "step {} has {} logits rows", plan.step_id,
          plan.num_logits_rows());
  last_launched_step_ = plan.step_id;
  copied_.clear();
  apply(plan);
  StepResult result;
  result.step_id = plan.step_id;
  std::set<int32_t> seen;
  for (const ScheduledSlot& scheduled : plan.scheduled) {
    require(seen.insert(scheduled.slot).second, "slot {} is scheduled twice in step {}", scheduled.slot, plan.step_id);
    store(scheduled, plan);  // all of a layer's KV is stored before its attention runs
  }
  require(num_score_rows(plan) <= limits_.max_scored_rows, "step {} scores {} rows", plan.step_id,
          num_score_rows(plan));
  require(plan.num_hidden() <= limits_.max_hidden_rows, "step {} brings {} hidden states", plan.step_id,
          plan.num_hidden());
  for (const ScheduledSlot& scheduled : plan.scheduled) {
    if (!scheduled.brings_results()) continue;
    StepResult::Slot& out = result.slots.emplace_back(StepResult::Slot{scheduled.slot, {}});
    score(scheduled, out);
    bring_hidden(scheduled, out);
    sample(scheduled, plan.step_id, out);
  }
  in_flight_.emplace_back(next_ticket_, std::move(result));
  ++num_steps_;
  return next_ticket_++;
}

StepResult FakeRunner::collect(Ticket ticket) {
  require(!in_flight_.empty() && in_flight_.front().first == ticket, "ticket {} is not the oldest in flight", ticket);
  StepResult result = std::move(in_flight_.front().second);
  in_flight_.pop_front();
  last_collected_step_ = result.step_id;
  return result;
}

FakeRunner::Slot& FakeRunner::slot_at(int32_t slot) {
  require(slot >= 0 && slot < limits_.max_num_seqs, "slot {} of {}", slot, limits_.max_num_seqs);
  return slots_[static_cast<size_t>(slot)];
}

void FakeRunner::apply(const StepPlan& plan) {
  for (const ShrunkSlot& shrunk : plan.shrunk) shrink(shrunk);
  for (const int32_t slot : plan.finished) release(slot);
  for (const int32_t slot : plan.preempted) release(slot);
  require(plan.fresh_blocks.size() == blocks_.size(), "fresh blocks of {} groups", plan.fresh_blocks.size());
  for (size_t g = 0; g < blocks_.size(); ++g) {
    for (const int32_t id : plan.fresh_blocks[g]) {
      Block& block = blocks_[g].at(static_cast<size_t>(id));
      require(block.used_before && block.num_tables == 0, "fresh block {} is not a recycled one", id);
      require(block.last_step <= last_collected_step_, "block {} is handed out while step {} is in flight", id,
              block.last_step);
      std::fill(block.token_ids.begin(), block.token_ids.end(), kPoison);
    }
  }
  for (const GroupCopies& copies : plan.copies) copy(copies);
  // Before the new slots: those may share what a running one computes in this very step.
  for (const GrownSlot& grown : plan.grown) {
    hand_out(slot_at(grown.slot), grown.slot, grown.block_ids, plan, /*may_share=*/false);
  }
  for (const NewSlot& fresh : plan.new_slots) {
    Slot& slot = slot_at(fresh.slot);
    require(!slot.used, "slot {} is taken", fresh.slot);
    slot.used = true;
    for (const int32_t id : fresh.token_ids) slot.tokens.push_back({id, 0});
    slot.sampling = fresh.sampling;
    require(fresh.slot < limits_.max_num_adjusted || !(fresh.sampling.has_penalties() || fresh.sampling.has_bias()),
            "slot {} of {} with tables is adjusted", fresh.slot, limits_.max_num_adjusted);
    slot.num_prompt_tokens = fresh.num_prompt_tokens;
    slot.blocks.resize(blocks_.size());
    hand_out(slot, fresh.slot, fresh.block_ids, plan, /*may_share=*/true);
  }
}

void FakeRunner::shrink(const ShrunkSlot& shrunk) {
  Slot& slot = slot_at(shrunk.slot);
  require(slot.used && shrunk.first.size() == blocks_.size(), "slot {} shrinks in {} groups", shrunk.slot,
          shrunk.first.size());
  for (size_t g = 0; g < blocks_.size(); ++g) {
    for (size_t i = 0; i < static_cast<size_t>(shrunk.first[g]); ++i) {
      int32_t& id = slot.blocks[g].at(i);
      if (id != kNullBlock) --blocks_[g][static_cast<size_t>(id)].num_tables;
      id = kNullBlock;
    }
  }
}

void FakeRunner::copy(const GroupCopies& copies) {
  const auto g = static_cast<size_t>(copies.group);
  for (const BlockCopy& pair : copies.copies) {
    Block& source = blocks_.at(g).at(static_cast<size_t>(pair.source));
    Block& destination = blocks_[g].at(static_cast<size_t>(pair.destination));
    require(source.used_before && destination.num_tables == 0 && pair.source != pair.destination,
            "block {} is copied to {}", pair.source, pair.destination);
    destination.token_ids = source.token_ids;
    copied_.insert({g, pair.destination});
    source.last_step = last_launched_step_;
  }
}

void FakeRunner::release(int32_t slot_id) {
  Slot& slot = slot_at(slot_id);
  require(slot.used, "slot {} is released and is not in use", slot_id);
  for (size_t g = 0; g < blocks_.size(); ++g) {
    for (const int32_t id : slot.blocks[g]) {
      if (id != kNullBlock) --blocks_[g][static_cast<size_t>(id)].num_tables;
    }
  }
  slot = {};
}

void FakeRunner::hand_out(Slot& slot, int32_t slot_id, const std::vector<std::vector<int32_t>>& block_ids,
                          const StepPlan& plan, bool may_share) {
  require(slot.used, "slot {} grows and is not in use", slot_id);
  require(block_ids.size() == blocks_.size(), "slot {} gets blocks of {} groups", slot_id, block_ids.size());
  for (size_t g = 0; g < blocks_.size(); ++g) {
    for (const int32_t id : block_ids[g]) {
      slot.blocks[g].push_back(id);
      if (id == kNullBlock && may_share) continue;
      require(id >= 0 && id < limits_.num_blocks[g], "block {} of {} in group {}", id, limits_.num_blocks[g], g);
      Block& block = blocks_[g][static_cast<size_t>(id)];
      const std::vector<int32_t>& fresh = plan.fresh_blocks[g];
      const auto times_fresh = std::count(fresh.begin(), fresh.end(), id);
      const bool is_new = !block.used_before || times_fresh == 1 || copied_.count({g, id}) == 1;
      require(times_fresh <= 1 && (is_new || may_share), "block {} of group {} is recycled, in fresh_blocks: {} times",
              id, g, times_fresh);
      require(may_share || block.num_tables == 0, "block {} of group {} goes to slot {} and is in use", id, g, slot_id);
      block.used_before = true;
      ++block.num_tables;
      block.num_joined = block.joined_in == plan.step_id ? block.num_joined + 1 : 1;
      block.joined_in = plan.step_id;
    }
  }
}

void FakeRunner::store(const ScheduledSlot& scheduled, const StepPlan& plan) {
  Slot& slot = slot_at(scheduled.slot);
  require(slot.used && scheduled.num_tokens > 0, "slot {}: {} tokens", scheduled.slot, scheduled.num_tokens);
  const bool enters = std::exchange(slot.has_entered, true) == false;  // what is before its start was found computed
  require(enters || scheduled.start == slot.num_computed || (allow_rewinds_ && scheduled.start < slot.num_computed),
          "slot {} starts at {} and has computed {}", scheduled.slot, scheduled.start, slot.num_computed);
  const int64_t end = scheduled.start + scheduled.num_tokens;
  require(end <= limits_.max_model_len && end <= static_cast<int64_t>(slot.tokens.size()),
          "slot {} computes up to {} of {}", scheduled.slot, end, slot.tokens.size());
  if (scheduled.source == TokenSource::kLastSampled) {
    require(limits_.num_stages == 1, "slot {} takes its last sampled token, which is on another stage", scheduled.slot);
    require(scheduled.num_tokens == 1 && scheduled.start == slot.last_sampled_position,
            "slot {} takes its last sampled token for position {}, which is of position {}", scheduled.slot,
            scheduled.start, slot.last_sampled_position);
  }
  for (size_t g = 0; g < blocks_.size(); ++g) {
    const int64_t block_size = limits_.kv_groups[g].block_size;
    require(static_cast<int64_t>(slot.blocks[g].size()) * block_size >= end, "slot {}: {} blocks for {} positions",
            scheduled.slot, slot.blocks[g].size(), end);
    for (const int32_t id : slot.blocks[g]) {
      if (id != kNullBlock) blocks_[g][static_cast<size_t>(id)].last_step = plan.step_id;
    }
    for (int64_t p = scheduled.start; p < end; ++p) {
      const Token& token = slot.tokens[static_cast<size_t>(p)];
      require(scheduled.source == TokenSource::kLastSampled || token.sampled_in <= last_collected_step_,
              "slot {}: the literal token {} comes out of step {}, not collected yet", scheduled.slot, p,
              token.sampled_in);
      const int32_t id = slot.blocks[g][static_cast<size_t>(p / block_size)];
      require(id != kNullBlock, "slot {} writes position {} into a block it has left", scheduled.slot, p);
      Block& block = blocks_[g][static_cast<size_t>(id)];
      int32_t& stored = block.token_ids[static_cast<size_t>(p % block_size)];
      // Who has got it in this step counts on what the step writes.
      const int32_t num_before = block.num_tables - (block.joined_in == plan.step_id ? block.num_joined : 0);
      require(num_before <= (enters ? 0 : 1) || stored == kPoison,
              "slot {} writes position {} over block {} of group {}, which {} tables hold", scheduled.slot, p, id, g,
              block.num_tables);
      stored = token.id;
    }
  }
  slot.num_computed = end;
}

int64_t FakeRunner::num_score_rows(const StepPlan& plan) {
  int64_t rows = 0;
  for (const ScheduledSlot& scheduled : plan.scheduled) {
    const bool has_top = slot_at(scheduled.slot).sampling.num_prompt_logprobs >= 0;
    require(scheduled.num_scored == 0 || has_top || scheduled.list_width() > 0, "slot {} scores nothing",
            scheduled.slot);
    require(scheduled.list_width() <= limits_.max_logprobs, "slot {} lists {} tokens", scheduled.slot,
            scheduled.list_width());
    rows += scheduled.num_scored * ((has_top ? 1 : 0) + (scheduled.list_width() > 0 ? 1 : 0));
  }
  return rows;
}

void FakeRunner::score(const ScheduledSlot& scheduled, StepResult::Slot& out) {
  Slot& slot = slot_at(scheduled.slot);
  const int64_t begin = scheduled.start + scheduled.scored_begin, end = begin + scheduled.num_scored;
  if (begin == end) return;
  require(scheduled.scored_begin >= 0 && begin < end && begin >= slot.scored_end && end < slot.num_prompt_tokens &&
              end <= scheduled.start + scheduled.num_tokens,
          "slot {} scores [{}, {}) of a prompt of {} in a step from {}", scheduled.slot, begin, end,
          slot.num_prompt_tokens, scheduled.start);
  slot.scored_end = end;
  for (int64_t p = begin; p < end; ++p) {
    out.scored.push_back(
        model_.score(shown(slot, p), slot.tokens[static_cast<size_t>(p + 1)].id, slot.sampling.num_prompt_logprobs));
    for (int64_t i = (p - begin) * scheduled.list_width(); i < (p - begin + 1) * scheduled.list_width(); ++i) {
      const int32_t id = scheduled.scored_lists[static_cast<size_t>(i)];
      require(id >= -1 && id < limits_.vocab_size, "slot {} lists token {}", scheduled.slot, id);
      out.listed.push_back(id < 0 ? -std::numeric_limits<float>::infinity()
                                  : model_.score(shown(slot, p), id, 0).logprob);
    }
  }
}

void FakeRunner::bring_hidden(const ScheduledSlot& scheduled, StepResult::Slot& out) {
  if (scheduled.num_hidden == 0) return;
  Slot& slot = slot_at(scheduled.slot);
  const int64_t begin = scheduled.start + scheduled.hidden_begin, end = begin + scheduled.num_hidden;
  const bool is_last_alone = slot.hidden.empty() && end - begin == 1 && end == slot.num_prompt_tokens;
  require(scheduled.hidden_begin >= 0 && (begin == slot.hidden_end || is_last_alone) && end <= slot.num_prompt_tokens &&
              end <= scheduled.start + scheduled.num_tokens && scheduled.hidden_ends == (end == slot.num_prompt_tokens),
          "slot {} brings the hidden states [{}, {}) of a prompt of {} in a step from {}, after {}", scheduled.slot,
          begin, end, slot.num_prompt_tokens, scheduled.start, slot.hidden_end);
  slot.hidden.resize(2);
  for (int64_t p = begin; p < end; ++p) slot.hidden[0] += model_.hidden(shown(slot, p));
  slot.hidden[1] += static_cast<float>(end - begin);
  slot.hidden_end = end;
  if (scheduled.hidden_ends) out.hidden = slot.hidden;
}

void FakeRunner::sample(const ScheduledSlot& scheduled, uint64_t step_id, StepResult::Slot& out) {
  Slot& slot = slot_at(scheduled.slot);
  require(scheduled.constraints.empty() || scheduled.constraints.size() == scheduled.logits_rows.size(),
          "constraints of {} rows", scheduled.constraints.size());
  for (size_t i = 0; i < scheduled.logits_rows.size(); ++i) {
    const int64_t position = scheduled.start + scheduled.logits_rows[i];
    const StepConstraints none;
    out.tokens.push_back(model_.next(shown(slot, position), slot.sampling.key,
                                     scheduled.constraints.empty() ? none : scheduled.constraints[i]));
    slot.tokens.resize(static_cast<size_t>(position + 1));
    slot.tokens.push_back({out.tokens.back().token_id, step_id});
    slot.last_sampled_position = position + 1;
  }
  num_sampled_tokens_ += static_cast<int64_t>(out.tokens.size());
}

std::vector<std::vector<int32_t>> FakeRunner::shown(const Slot& slot, int64_t position) const {
  std::vector<std::vector<int32_t>> shown(blocks_.size());
  for (size_t g = 0; g < blocks_.size(); ++g) {
    const KvSpec& spec = limits_.kv_groups[g];
    for (int64_t p = spec.first_visible(position); p <= position; ++p) {
      const int32_t id = slot.blocks[g][static_cast<size_t>(p / spec.block_size)];
      require(id != kNullBlock, "position {} sees position {}, whose block is gone", position, p);
      const int32_t token = blocks_[g][static_cast<size_t>(id)].token_ids[static_cast<size_t>(p % spec.block_size)];
      require(token == slot.tokens[static_cast<size_t>(p)].id,
              "block {} of group {} holds token {} where position {} of the sequence has {}", id, g, token, p,
              slot.tokens[static_cast<size_t>(p)].id);
      shown[g].push_back(token);
    }
  }
  return shown;
}

}  // namespace tokenmill::test
