// Format 3, little-endian. Counts are u32; a list is its count, then its items.
//   u8 version | u64 step_id | list{i32 slot, list<token> tokens, list<token> scored, list<f32> listed, list<f32> hidden} slots
// token: i32 token_id, f32 logprob, u8 status, i32 rank, list{i32 token_id, f32 logprob, i32 rank} top
#include "engine/step_result.h"

#include "engine/plan_bytes.h"

namespace tokenmill {
namespace {

constexpr uint8_t kVersion = 3;

template <typename Out>
void write(Out& out, const std::vector<SampledToken>& tokens) {
  write_count(out, tokens);
  for (const SampledToken& token : tokens) {
    out.value(token.token_id);
    out.value(token.logprob);
    out.value(static_cast<uint8_t>(token.status));
    out.value(token.rank);
    write_count(out, token.top);
    for (const TokenLogprob& other : token.top) {
      out.value(other.token_id);
      out.value(other.logprob);
      out.value(other.rank);
    }
  }
}

template <typename Out>
void write(Out& out, const StepResult& result) {
  out.value(kVersion);
  out.value(result.step_id);
  write_count(out, result.slots);
  for (const StepResult::Slot& slot : result.slots) {
    out.value(slot.slot);
    write(out, slot.tokens);
    write(out, slot.scored);
    write_count(out, slot.listed);
    for (const float logprob : slot.listed) out.value(logprob);
    write_count(out, slot.hidden);
    for (const float value : slot.hidden) out.value(value);
  }
}

void read_tokens(PlanReader& in, const char* what, std::vector<SampledToken>& tokens) {
  tokens.resize(in.count(what, 17));
  for (SampledToken& token : tokens) {
    token.token_id = in.value<int32_t>("token_id");
    token.logprob = in.value<float>("logprob");
    const auto status = in.value<uint8_t>("status");
    if (status > static_cast<uint8_t>(SampleStatus::kNothingAllowed)) in.fail("status", "is {}; 0 to 2 are known", status);
    token.status = static_cast<SampleStatus>(status);
    token.rank = in.value<int32_t>("rank");
    token.top.resize(in.count("top", 12));
    for (TokenLogprob& other : token.top) {
      other.token_id = in.value<int32_t>("top.token_id");
      other.logprob = in.value<float>("top.logprob");
      other.rank = in.value<int32_t>("top.rank");
    }
  }
}

}  // namespace

std::vector<std::byte> serialize(const StepResult& result) {
  PlanByteCount size;
  write(size, result);
  std::vector<std::byte> bytes(size.size());
  PlanWriter out(bytes.data());
  write(out, result);
  return bytes;
}

StepResult deserialize_step_result(std::span<const std::byte> bytes) {
  PlanReader in(bytes, "step result");
  const auto version = in.value<uint8_t>("version");
  if (version != kVersion) in.fail("version", "is {}; this program knows {}", version, kVersion);
  StepResult result;
  result.step_id = in.value<uint64_t>("step_id");
  result.slots.resize(in.count("slots", 20));
  for (StepResult::Slot& slot : result.slots) {
    slot.slot = in.value<int32_t>("slot");
    read_tokens(in, "tokens", slot.tokens);
    read_tokens(in, "scored", slot.scored);
    slot.listed.resize(in.count("listed", 4));
    for (float& logprob : slot.listed) logprob = in.value<float>("listed");
    slot.hidden.resize(in.count("hidden", 4));
    for (float& value : slot.hidden) value = in.value<float>("hidden");
  }
  if (in.left() != 0) in.fail("end", "has {} more bytes", in.left());
  return result;
}

}  // namespace tokenmill
