#include "generator.h"

#include <ATen/Utils.h>
#include <c10/core/GeneratorImpl.h>

#include <cstring>
#include <deque>
#include <mutex>

#include "lower.h"

namespace openxpu {
namespace {

// The random state; graphsafe_set_state shares it between generators.
struct State final : c10::intrusive_ptr_target {
    xpu_generator *generator = nullptr;
    State() { check(xpu_generator_create(&generator)); }
    ~State() override { xpu_generator_destroy(generator); }
};

struct GeneratorImpl final : c10::GeneratorImpl {
    c10::intrusive_ptr<State> state;

    explicit GeneratorImpl(c10::DeviceIndex device,
                           c10::intrusive_ptr<State> shared = c10::make_intrusive<State>())
        : c10::GeneratorImpl(c10::Device(c10::kXPU, device), c10::DispatchKeySet(c10::DispatchKey::XPU)),
          state(std::move(shared)) {}
    static c10::DeviceType device_type() { return c10::kXPU; }

    void set_current_seed(uint64_t seed) override { check(xpu_generator_set_seed(state->generator, seed)); }
    uint64_t current_seed() const override {
        uint64_t seed;
        check(xpu_generator_get_seed(state->generator, &seed));
        return seed;
    }
    uint64_t seed() override {
        const auto random = c10::detail::getNonDeterministicRandom(true);
        set_current_seed(random);
        return random;
    }
    void set_offset(uint64_t offset) override { check(xpu_generator_set_offset(state->generator, offset)); }
    uint64_t get_offset() const override {
        uint64_t offset;
        check(xpu_generator_get_offset(state->generator, &offset));
        return offset;
    }

    // 8 bytes of seed, 8 of offset; a state with only a seed has offset 0.
    c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
        const uint64_t words[2] = {current_seed(), get_offset()};
        auto tensor = at::detail::empty_cpu({sizeof words}, c10::kByte, {}, {}, {}, {});
        std::memcpy(tensor.mutable_data_ptr(), words, sizeof words);
        return tensor.getIntrusivePtr();
    }
    void set_state(const c10::TensorImpl &from) override {
        at::detail::check_rng_state(from);
        uint64_t words[2] = {0, 0};
        const auto size = static_cast<size_t>(from.numel());
        TORCH_CHECK(size == sizeof words || size == sizeof *words, "RNG state is wrong size: expected ",
                    sizeof words, " or ", sizeof *words, " bytes, got ", size);
        std::memcpy(words, from.data_ptr_impl<uint8_t>(), size);
        set_current_seed(words[0]);
        set_offset(words[1]);
    }
    void graphsafe_set_state(const c10::intrusive_ptr<c10::GeneratorImpl> &from) override {
        auto *other = dynamic_cast<GeneratorImpl *>(from.get());
        TORCH_CHECK(other, "the state belongs to another device's generator");
        state = other->state;
    }
    c10::intrusive_ptr<c10::GeneratorImpl> graphsafe_get_state() const override {
        return c10::make_intrusive<GeneratorImpl>(device().index(), state);
    }
    GeneratorImpl *clone_impl() const override {
        auto *copy = new GeneratorImpl(device().index());
        copy->set_current_seed(current_seed());
        copy->set_offset(get_offset());
        return copy;
    }
};

c10::DeviceIndex index_or_current(c10::DeviceIndex device) {
    const int index = device < 0 ? current_device() : device;
    int count;
    check(xpu_device_count(&count));
    TORCH_CHECK(index < count, "xpu device index ", index, " is out of range: there are ", count);
    return static_cast<c10::DeviceIndex>(index);
}

} // namespace

const at::Generator &default_generator(c10::DeviceIndex device) {
    static std::mutex generators_lock;
    static std::deque<at::Generator> generators; // grows without moving its elements
    device = index_or_current(device);
    std::lock_guard guard(generators_lock);
    while (generators.size() <= static_cast<size_t>(device))
        generators.push_back(
            at::make_generator<GeneratorImpl>(static_cast<c10::DeviceIndex>(generators.size())));
    return generators[device];
}

at::Generator new_generator(c10::DeviceIndex device) {
    return at::make_generator<GeneratorImpl>(index_or_current(device));
}

xpu_generator *generator_of(const std::optional<at::Generator> &generator, c10::DeviceIndex device) {
    const auto &chosen = generator && generator->defined() ? *generator : default_generator(device);
    TORCH_CHECK(chosen.device().type() == c10::kXPU, "Expected a 'xpu' device type for generator but found '",
                chosen.device().type(), "'");
    return static_cast<GeneratorImpl *>(chosen.unsafeGetGeneratorImpl())->state->generator;
}

} // namespace openxpu
