// Format 6, little-endian. Counts are u32, ids i32, positions i64; a list is its count, then its items.
//   u8 version | u8 flags (bit 0 dummy, bit 1 stop) | u64 step_id
//   list{i32 slot, list<i32> first} shrunk
//   list<i32> finished | list<i32> preempted
//   list{i32 slot, i64 position, list<i32> token_ids} sampled
//   list<list<i32>> fresh_blocks
//   list{i32 group, list{i32 source, i32 destination}} copies
//   list{i32 slot, list<i32> token_ids, i64 num_prompt_tokens, sampling, list<list<i32>> blocks} new_slots
//   list{i32 slot, list<list<i32>> blocks} grown
//   list{i32 slot, i64 start, i32 num_tokens, u8 source, list<i32> logits_rows,
//        list{i32 forced, list<i32> masked} constraints, i32 scored_begin, i32 num_scored, list<i32> scored_lists,
//        i32 hidden_begin, i32 num_hidden, u8 hidden_ends} scheduled
// sampling (slot_sampling.cpp): f32 temperature, f32 top_p, f32 min_p, i32 top_k, u64 key, f32 presence, f32 frequency,
//   f32 repetition, u8 only_biased, list{i32 token_id, f32 bias} bias, i32 num_logprobs, list<i32> logprob_token_ids,
//   i32 num_prompt_logprobs
// Every value has one encoding and no byte is left over, so equal plans have equal bytes and bytes that are accepted
// are the bytes that serialize() would give.
#include "engine/step_plan.h"

#include "engine/plan_bytes.h"

namespace tokenmill {
namespace {

constexpr uint8_t kVersion = 6;
constexpr uint8_t kDummyFlag = 1;
constexpr uint8_t kStopFlag = 2;

template <typename Out>
void write(Out& out, const std::vector<std::vector<int32_t>>& lists) {
  write_count(out, lists);
  for (const std::vector<int32_t>& list : lists) out.ids(list);
}

template <typename Out>
void write(Out& out, const StepPlan& plan) {
  out.value(kVersion);
  out.value(static_cast<uint8_t>((plan.dummy ? kDummyFlag : 0) | (plan.stop ? kStopFlag : 0)));
  out.value(plan.step_id);
  write_count(out, plan.shrunk);
  for (const ShrunkSlot& slot : plan.shrunk) {
    out.value(slot.slot);
    out.ids(slot.first);
  }
  out.ids(plan.finished);
  out.ids(plan.preempted);
  write_count(out, plan.sampled);
  for (const SampledTokens& tokens : plan.sampled) {
    out.value(tokens.slot);
    out.value(tokens.position);
    out.ids(tokens.token_ids);
  }
  write(out, plan.fresh_blocks);
  write_count(out, plan.copies);
  for (const GroupCopies& group : plan.copies) {
    out.value(group.group);
    write_count(out, group.copies);
    for (const BlockCopy& copy : group.copies) {
      out.value(copy.source);
      out.value(copy.destination);
    }
  }
  write_count(out, plan.new_slots);
  for (const NewSlot& slot : plan.new_slots) {
    out.value(slot.slot);
    out.ids(slot.token_ids);
    out.value(slot.num_prompt_tokens);
    write(out, slot.sampling);
    write(out, slot.block_ids);
  }
  write_count(out, plan.grown);
  for (const GrownSlot& slot : plan.grown) {
    out.value(slot.slot);
    write(out, slot.block_ids);
  }
  write_count(out, plan.scheduled);
  for (const ScheduledSlot& slot : plan.scheduled) {
    out.value(slot.slot);
    out.value(slot.start);
    out.value(slot.num_tokens);
    out.value(static_cast<uint8_t>(slot.source));
    out.ids(slot.logits_rows);
    write(out, slot.constraints);
    out.value(slot.scored_begin);
    out.value(slot.num_scored);
    out.ids(slot.scored_lists);
    out.value(slot.hidden_begin);
    out.value(slot.num_hidden);
    out.value(static_cast<uint8_t>(slot.hidden_ends));
  }
}

void read_copies(PlanReader& in, std::vector<GroupCopies>& out) {
  out.resize(in.count("copies", 8));
  for (GroupCopies& group : out) {
    group.group = in.value<int32_t>("copies.group");
    group.copies.resize(in.count("copies of a group", 8));
    for (BlockCopy& copy : group.copies) {
      copy.source = in.value<int32_t>("copy.source");
      copy.destination = in.value<int32_t>("copy.destination");
    }
  }
}

void read_scheduled(PlanReader& in, std::vector<ScheduledSlot>& out) {
  out.resize(in.count("scheduled", 46));
  for (ScheduledSlot& slot : out) {
    slot.slot = in.value<int32_t>("scheduled.slot");
    slot.start = in.value<int64_t>("scheduled.start");
    slot.num_tokens = in.value<int32_t>("scheduled.num_tokens");
    const auto source = in.value<uint8_t>("scheduled.source");
    if (source > static_cast<uint8_t>(TokenSource::kLastSampled))
      in.fail("scheduled.source", "is {}; 0 and 1 are known", source);
    slot.source = static_cast<TokenSource>(source);
    in.ids("scheduled.logits_rows", slot.logits_rows);
    slot.constraints = read_step_constraints(in);
    if (!slot.constraints.empty() && slot.constraints.size() != slot.logits_rows.size())
      in.fail("scheduled.constraints", "are of {} logits rows; there are {}", slot.constraints.size(),
              slot.logits_rows.size());
    slot.scored_begin = in.value<int32_t>("scheduled.scored_begin");
    slot.num_scored = in.value<int32_t>("scheduled.num_scored");
    in.ids("scheduled.scored_lists", slot.scored_lists);
    if (slot.num_scored > 0 ? slot.scored_lists.size() % static_cast<size_t>(slot.num_scored) != 0
                            : !slot.scored_lists.empty())
      in.fail("scheduled.scored_lists", "has {} ids for {} positions", slot.scored_lists.size(), slot.num_scored);
    slot.hidden_begin = in.value<int32_t>("scheduled.hidden_begin");
    slot.num_hidden = in.value<int32_t>("scheduled.num_hidden");
    slot.hidden_ends = in.flag("scheduled.hidden_ends");
  }
}

}  // namespace

int64_t StepPlan::num_tokens() const {
  int64_t sum = 0;
  for (const ScheduledSlot& slot : scheduled) sum += slot.num_tokens;
  return sum;
}

int64_t StepPlan::num_hidden() const {
  int64_t sum = 0;
  for (const ScheduledSlot& slot : scheduled) sum += slot.num_hidden;
  return sum;
}

int64_t StepPlan::num_logits_rows() const {
  int64_t sum = 0;
  for (const ScheduledSlot& slot : scheduled) sum += static_cast<int64_t>(slot.logits_rows.size());
  return sum;
}

std::vector<std::byte> serialize(const StepPlan& plan) {
  PlanByteCount size;
  write(size, plan);
  std::vector<std::byte> bytes(size.size());
  PlanWriter out(bytes.data());
  write(out, plan);
  return bytes;
}

StepPlan deserialize_step_plan(std::span<const std::byte> bytes) {
  PlanReader in(bytes);
  const auto version = in.value<uint8_t>("version");
  if (version != kVersion) in.fail("version", "is {}; this program knows {}", version, kVersion);
  const auto flags = in.value<uint8_t>("flags");
  if ((flags & ~(kDummyFlag | kStopFlag)) != 0) in.fail("flags", "are {}; 0 to 3 are known", flags);
  StepPlan plan;
  plan.dummy = (flags & kDummyFlag) != 0;
  plan.stop = (flags & kStopFlag) != 0;
  plan.step_id = in.value<uint64_t>("step_id");
  plan.shrunk.resize(in.count("shrunk", 8));
  for (ShrunkSlot& slot : plan.shrunk) {
    slot.slot = in.value<int32_t>("shrunk.slot");
    in.ids("shrunk.first", slot.first);
  }
  in.ids("finished", plan.finished);
  in.ids("preempted", plan.preempted);
  plan.sampled.resize(in.count("sampled", 16));
  for (SampledTokens& tokens : plan.sampled) {
    tokens.slot = in.value<int32_t>("sampled.slot");
    tokens.position = in.value<int64_t>("sampled.position");
    in.ids("sampled.token_ids", tokens.token_ids);
  }
  in.id_lists("fresh_blocks", plan.fresh_blocks);
  read_copies(in, plan.copies);
  plan.new_slots.resize(in.count("new_slots", 73));
  for (NewSlot& slot : plan.new_slots) {
    slot.slot = in.value<int32_t>("new_slots.slot");
    in.ids("new_slots.token_ids", slot.token_ids);
    slot.num_prompt_tokens = in.value<int64_t>("new_slots.num_prompt_tokens");
    slot.sampling = read_slot_sampling(in);
    in.id_lists("new_slots.block_ids", slot.block_ids);
  }
  plan.grown.resize(in.count("grown", 8));
  for (GrownSlot& slot : plan.grown) {
    slot.slot = in.value<int32_t>("grown.slot");
    in.id_lists("grown.block_ids", slot.block_ids);
  }
  read_scheduled(in, plan.scheduled);
  if (in.left() != 0) in.fail("end", "has {} more bytes", in.left());
  return plan;
}

}  // namespace tokenmill
