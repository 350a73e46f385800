// SPDX-License-Identifier: MIT OR Apache-2.0
//
// uwork.hpp: uwork for C++17. Queues, items, jobs, bounds, per-CPU data, task work and thread hooks
// as objects that clean up in their destructors. uwork.h describes the calls behind them.
//
// A failed call throws uwork::error. An exception that leaves the function of an item ends the
// process (std::terminate). join() rethrows an exception that leaves a job.
#ifndef UWORK_HPP
#define UWORK_HPP

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <iterator>
#include <memory>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <system_error>
#include <type_traits>
#include <utility>
#include <variant>

#include "uwork.h"

namespace uwork {

// A failed call. code() is the errno value.
class error : public std::system_error {
public:
	explicit error(int errno_value)
		: error(errno_value, uw_error_text())
	{
	}

	error(int errno_value, const char *words)
		: std::system_error(errno_value, std::generic_category(), words)
	{
	}
};

// The result of a call, unless it is an error.
inline int checked(int answer)
{
	if (answer < 0)
		throw error(-answer);
	return answer;
}

inline std::int64_t checked(std::int64_t answer)
{
	if (answer < 0)
		throw error(static_cast<int>(-answer));
	return answer;
}

inline std::uint64_t nanoseconds(std::chrono::nanoseconds delay)
{
	return delay.count() > 0 ? static_cast<std::uint64_t>(delay.count()) : 0;
}

template <typename T>
class job;

// A queue. The destructor waits until every queued item has run.
class queue {
public:
	explicit queue(const char *name, unsigned flags = UW_UNBOUND, unsigned max_active = 0)
		: queue_(uw_queue_create(name, flags, max_active))
	{
		if (queue_ == nullptr)
			throw error(errno);
	}

	queue(const char *name, const uw_queue_attrs &attrs) : queue_(uw_queue_create_attrs(name, &attrs))
	{
		if (queue_ == nullptr)
			throw error(errno);
	}

	// One of the system queues, which are never destroyed.
	static queue system(enum uw_system_queue which)
	{
		uw_queue *known = ::uw_system_queue(which);

		if (known == nullptr)
			throw error(errno);
		return queue(known, false);
	}

	queue(queue &&other) noexcept
		: queue_(std::exchange(other.queue_, nullptr)), owned_(other.owned_)
	{
	}

	queue &operator=(queue &&other) noexcept
	{
		std::swap(queue_, other.queue_);
		std::swap(owned_, other.owned_);
		return *this;
	}

	queue(const queue &) = delete;
	queue &operator=(const queue &) = delete;

	~queue()
	{
		// Inside one of its own items a queue cannot be destroyed: it stays.
		if (queue_ != nullptr && owned_)
			static_cast<void>(uw_queue_destroy(queue_));
	}

	void flush()
	{
		checked(uw_queue_flush(queue_));
	}

	// Returns false if not everything has run within the limit.
	[[nodiscard]] bool flush_for(std::chrono::nanoseconds limit)
	{
		int answer = uw_queue_flush_timeout(queue_, nanoseconds(limit));

		return answer == -ETIMEDOUT ? false : (checked(answer), true);
	}

	void pause()
	{
		checked(uw_queue_pause(queue_));
	}

	// Returns false, and pauses nothing, if an item still runs after the limit.
	[[nodiscard]] bool pause_for(std::chrono::nanoseconds limit)
	{
		int answer = uw_queue_pause_timeout(queue_, nanoseconds(limit));

		return answer == -ETIMEDOUT ? false : (checked(answer), true);
	}

	void resume()
	{
		checked(uw_queue_resume(queue_));
	}

	bool paused() const
	{
		return checked(uw_queue_is_paused(queue_)) != 0;
	}

	void drain()
	{
		checked(uw_queue_drain(queue_));
	}

	void set_max_active(unsigned max_active)
	{
		checked(uw_queue_set_max_active(queue_, max_active));
	}

	// How much later than their deadlines timers of the queue may expire, to share wake-ups.
	void set_timer_slack(std::chrono::nanoseconds slack)
	{
		checked(uw_queue_set_timer_slack(queue_, nanoseconds(slack)));
	}

	void set_scope(uw_scope scope)
	{
		checked(uw_queue_set_scope(queue_, scope));
	}

	// Queues a function. The job receives its result or its exception.
	template <typename F>
	auto spawn(F function) -> job<std::invoke_result_t<F>>;

	uw_queue *get() const noexcept
	{
		return queue_;
	}

private:
	queue(uw_queue *known, bool owned) noexcept : queue_(known), owned_(owned)
	{
	}

	uw_queue *queue_;
	bool owned_ = true;
};

// The common part of items of every kind: a function, and the calls of uwork.h that take a struct
// uw_work. Items cannot be moved. The destructor cancels the item and waits for a run in progress,
// so it must not run in the item's own function.
template <typename Kind>
class basic_work {
public:
	basic_work(const basic_work &) = delete;
	basic_work &operator=(const basic_work &) = delete;

	bool cancel()
	{
		return checked(uw_work_cancel(get())) > 0;
	}

	bool cancel_sync()
	{
		return checked(uw_work_cancel_sync(get())) > 0;
	}

	// Disables the item once, and cancels it. Returns true if it was pending.
	bool disable()
	{
		return checked(uw_work_disable(get())) > 0;
	}

	bool disable_sync()
	{
		return checked(uw_work_disable_sync(get())) > 0;
	}

	// Undoes one disable. Returns true if the item can be queued again.
	bool enable()
	{
		return checked(uw_work_enable(get())) > 0;
	}

	bool is_pending() const
	{
		return checked(uw_work_is_pending(plain(&frame_))) > 0;
	}

	uw_work *get() noexcept
	{
		return plain(&frame_);
	}

protected:
	explicit basic_work(std::function<void()> function) : frame_{ {}, std::move(function) }
	{
	}

	~basic_work()
	{
		static_cast<void>(uw_work_disable_sync(get()));
	}

	Kind *item() noexcept
	{
		return &frame_;
	}

	// The function of items of this kind, as C calls it.
	static void run(uw_work *item) noexcept
	{
		// Every kind begins with its struct uw_work.
		static_cast<frame *>(reinterpret_cast<Kind *>(item))->function();
	}

private:
	struct frame : Kind {
		std::function<void()> function;
	};

	static_assert(std::is_standard_layout_v<Kind>);

	template <typename Item>
	static auto *plain(Item *item) noexcept
	{
		if constexpr (std::is_same_v<Kind, uw_work>)
			return item;
		else
			return &item->work;
	}

	frame frame_;
};

// An item: a function that is called once for each time it is queued, and never by two threads at
// once.
class work : public basic_work<uw_work> {
public:
	explicit work(std::function<void()> function) : basic_work(std::move(function))
	{
		uw_work_init(item(), run);
	}

	// Returns false if the item was already pending. The coming run then sees the caller's
	// earlier writes.
	bool enqueue(const queue &on)
	{
		return checked(uw_queue_work(on.get(), item())) > 0;
	}

	bool enqueue_on(int cpu, const queue &on)
	{
		return checked(uw_queue_work_on(on.get(), cpu, item())) > 0;
	}

	bool flush()
	{
		return checked(uw_work_flush(item())) > 0;
	}

	// Undoes one disable. Returns true if this call queued the item.
	bool enable_and_enqueue(const queue &on)
	{
		return checked(uw_enable_and_queue_work(on.get(), item())) > 0;
	}
};

// An item with a timer.
class delayed_work : public basic_work<uw_delayed_work> {
public:
	explicit delayed_work(std::function<void()> function, std::chrono::nanoseconds slack = {})
		: basic_work(std::move(function))
	{
		uw_delayed_work_init(item(), run, 0, nanoseconds(slack));
	}

	bool enqueue(const queue &on, std::chrono::nanoseconds delay)
	{
		return checked(uw_queue_delayed_work(on.get(), item(), nanoseconds(delay))) > 0;
	}

	// Returns true if the item was pending; it has the new delay now.
	bool modify(const queue &on, std::chrono::nanoseconds delay)
	{
		return checked(uw_mod_delayed_work(on.get(), item(), nanoseconds(delay))) == 0;
	}

	bool flush()
	{
		return checked(uw_delayed_work_flush(item())) > 0;
	}
};

// An item that is queued after a grace period: when every current rcu_read_side has ended.
class rcu_work : public basic_work<uw_rcu_work> {
public:
	explicit rcu_work(std::function<void()> function) : basic_work(std::move(function))
	{
		uw_rcu_work_init(item(), run);
	}

	bool enqueue(const queue &on)
	{
		return checked(uw_queue_rcu_work(on.get(), item())) > 0;
	}

	// Waits for the grace period and for the run. Returns at once inside a read side.
	bool flush()
	{
		return checked(uw_rcu_work_flush(item())) > 0;
	}
};

// A read side: objects that are read without a lock stay valid while it exists. It must be
// destroyed on the thread that created it. Read sides nest.
class rcu_read_side {
public:
	rcu_read_side()
	{
		checked(uw_rcu_read_lock());
	}

	rcu_read_side(const rcu_read_side &) = delete;
	rcu_read_side &operator=(const rcu_read_side &) = delete;

	~rcu_read_side()
	{
		static_cast<void>(uw_rcu_read_unlock());
	}
};

// A queued function. The destructor detaches it: the function still runs.
template <typename T>
class job {
public:
	job(job &&other) noexcept
		: job_(std::exchange(other.job_, nullptr)), call_(std::move(other.call_))
	{
	}

	job &operator=(job &&other) noexcept
	{
		std::swap(job_, other.job_);
		std::swap(call_, other.call_);
		return *this;
	}

	job(const job &) = delete;
	job &operator=(const job &) = delete;

	~job()
	{
		uw_job_detach(job_);
	}

	// Waits for the function, and runs it on the caller's stack if it has not started and its
	// queue allows that. Can be called once.
	T join()
	{
		return join_by(uw_job_join);
	}

	// The same, but the caller never runs the function.
	T join_waiting()
	{
		return join_by(uw_job_join_waiting);
	}

	// Returns true if the function was cancelled before it started.
	bool cancel()
	{
		check_that_it_is_there();
		bool taken = checked(uw_job_cancel(job_)) > 0;

		if (taken)
			call_->queued.reset();
		return taken;
	}

	bool is_finished() const
	{
		check_that_it_is_there();
		return checked(uw_job_is_finished(job_)) > 0;
	}

private:
	friend class queue;
	friend class bounded_queue;

	T join_by(int (*function)(uw_job *job, void **result))
	{
		check_that_it_is_there();
		int answer = function(std::exchange(job_, nullptr), nullptr);

		if (answer == -ECANCELED || answer == -ESHUTDOWN)
			call_->queued.reset();
		checked(answer);
		if (call_->failure)
			std::rethrow_exception(call_->failure);
		if constexpr (!std::is_void_v<T>)
			return std::move(*call_->result);
	}

	struct nothing {
	};

	struct call {
		virtual ~call() = default;
		virtual T invoke() = 0;

		std::optional<std::conditional_t<std::is_void_v<T>, nothing, T>> result{};
		std::exception_ptr failure{};
		// The queue's reference, until the function runs or is cancelled.
		std::shared_ptr<call> queued{};
	};

	// Stores any movable function.
	template <typename F>
	struct call_of final : call {
		explicit call_of(F f) : function(std::move(f))
		{
		}

		T invoke() override
		{
			return function();
		}

		F function;
	};

	static void *run(void *arg) noexcept
	{
		std::shared_ptr<call> half = std::move(static_cast<call *>(arg)->queued);
		call &mine = *half;

		try {
			if constexpr (std::is_void_v<T>)
				mine.invoke();
			else
				mine.result.emplace(mine.invoke());
		} catch (...) {
			mine.failure = std::current_exception();
		}
		return nullptr;
	}

	void check_that_it_is_there() const
	{
		if (job_ == nullptr)
			throw error(EINVAL, "the job was joined already, or was moved to another one");
	}

	job(uw_job *known, std::shared_ptr<call> mine) noexcept : job_(known), call_(std::move(mine))
	{
	}

	// Queues a function by `start`, which is uw_queue_spawn() or one of its like with everything
	// but the last two arguments. Gives the function back if the call fails with `full`.
	template <typename F, typename Start>
	static std::variant<job, F> queued(F function, Start start, int full)
	{
		auto mine = std::make_shared<call_of<F>>(std::move(function));

		mine->queued = mine;
		uw_job *known = start(run, static_cast<call *>(mine.get()));
		if (known != nullptr)
			return job(known, std::move(mine));
		int failure = errno;
		mine->queued.reset();
		if (failure == full)
			return std::variant<job, F>(std::in_place_index<1>, std::move(mine->function));
		throw error(failure);
	}

	uw_job *job_;
	std::shared_ptr<call> call_;
};

template <typename F>
auto queue::spawn(F function) -> job<std::invoke_result_t<F>>
{
	auto start = [this](auto run, void *arg) { return uw_queue_spawn(queue_, run, arg); };

	return std::get<0>(job<std::invoke_result_t<F>>::queued(std::move(function), start, 0));
}

// A bound on how many functions and items wait in a queue: back-pressure for their producers. A
// function occupies a place until it starts or is cancelled. Those that run do not count. From an
// item of the queue only the calls with `try` are allowed: the others throw EDEADLK. The destructor
// leaves the queue alone. It must run after the functions and the places of this object.
class bounded_queue {
public:
	// A place that is taken, for items: reserve it before enqueue(), and destroy it first in the
	// item's function.
	class place {
	public:
		place(place &&other) noexcept : of_(std::exchange(other.of_, nullptr))
		{
		}

		place &operator=(place &&other) noexcept
		{
			std::swap(of_, other.of_);
			return *this;
		}

		place(const place &) = delete;
		place &operator=(const place &) = delete;

		~place()
		{
			if (of_ != nullptr)
				static_cast<void>(uw_bounded_release(of_));
		}

	private:
		friend class bounded_queue;

		explicit place(uw_bounded *of) noexcept : of_(of)
		{
		}

		uw_bounded *of_;
	};

	bounded_queue(const queue &on, std::size_t capacity) : bounded_(uw_bounded_create(on.get(), capacity))
	{
		if (bounded_ == nullptr)
			throw error(errno);
	}

	bounded_queue(bounded_queue &&other) noexcept : bounded_(std::exchange(other.bounded_, nullptr))
	{
	}

	bounded_queue &operator=(bounded_queue &&other) noexcept
	{
		std::swap(bounded_, other.bounded_);
		return *this;
	}

	bounded_queue(const bounded_queue &) = delete;
	bounded_queue &operator=(const bounded_queue &) = delete;

	~bounded_queue()
	{
		uw_bounded_destroy(bounded_);
	}

	// Waits for a place, and queues the function.
	template <typename F>
	auto spawn(F function) -> job<std::invoke_result_t<F>>
	{
		auto start = [this](auto run, void *arg) { return uw_bounded_spawn(bounded_, run, arg); };

		return std::get<0>(job<std::invoke_result_t<F>>::queued(std::move(function), start, 0));
	}

	// Queues the function if a place is free. Otherwise the function comes back, as the second
	// alternative.
	template <typename F>
	auto try_spawn(F function) -> std::variant<job<std::invoke_result_t<F>>, F>
	{
		auto start = [this](auto run, void *arg) { return uw_bounded_try_spawn(bounded_, run, arg); };

		return job<std::invoke_result_t<F>>::queued(std::move(function), start, EAGAIN);
	}

	// The same, but waits for a place within the limit.
	template <typename F>
	auto spawn_for(F function, std::chrono::nanoseconds limit)
		-> std::variant<job<std::invoke_result_t<F>>, F>
	{
		auto start = [this, limit](auto run, void *arg) {
			return uw_bounded_spawn_timeout(bounded_, run, arg, nanoseconds(limit));
		};

		return job<std::invoke_result_t<F>>::queued(std::move(function), start, ETIMEDOUT);
	}

	// Waits for a place, and takes it.
	place reserve()
	{
		checked(uw_bounded_reserve(bounded_));
		return place(bounded_);
	}

	// Returns nothing if no place is free.
	std::optional<place> try_reserve()
	{
		return reserved(uw_bounded_try_reserve(bounded_), -EAGAIN);
	}

	// Returns nothing if no place became free within the limit.
	std::optional<place> reserve_for(std::chrono::nanoseconds limit)
	{
		return reserved(uw_bounded_reserve_timeout(bounded_, nanoseconds(limit)), -ETIMEDOUT);
	}

	uw_bounded *get() const noexcept
	{
		return bounded_;
	}

private:
	std::optional<place> reserved(int answer, int full)
	{
		if (answer == full)
			return std::nullopt;
		checked(answer);
		return place(bounded_);
	}

	uw_bounded *bounded_;
};

// Calls `function` in a call of the library, and returns its result or throws its exception.
template <typename F>
auto call_in(int (*outer)(void (*)(void *), void *), F &function) -> std::invoke_result_t<F>
{
	using result = std::invoke_result_t<F>;

	struct call {
		F &function;
		std::exception_ptr failure;
		std::optional<std::conditional_t<std::is_void_v<result>, int, result>> value;
	} mine{ function, nullptr, std::nullopt };

	checked(outer(
		[](void *arg) noexcept {
			call &here = *static_cast<call *>(arg);

			try {
				if constexpr (std::is_void_v<result>)
					here.function();
				else
					here.value.emplace(here.function());
			} catch (...) {
				here.failure = std::current_exception();
			}
		},
		&mine));
	if (mine.failure)
		std::rethrow_exception(mine.failure);
	if constexpr (!std::is_void_v<result>)
		return std::move(*mine.value);
}

// Declares to the pool that the item blocks while `function` runs.
template <typename F>
auto blocking(F function) -> std::invoke_result_t<F>
{
	return call_in(uw_blocking, function);
}

// Calls `function` on all CPUs of the item's pod: for programs and threads that it starts.
template <typename F>
auto unpinned(F function) -> std::invoke_result_t<F>
{
	return call_in(uw_unpinned, function);
}

// A value for each CPU, each with its own lock. The values begin as zero bytes. No other thread may
// use the object when it is destroyed.
template <typename T>
class percpu {
	static_assert(std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T>,
		      "it begins as zero bytes, and is given back as bytes");
	static_assert(alignof(T) <= alignof(std::max_align_t), "it is aligned as malloc() does");

public:
	// One CPU's value, locked. Hold it for a few instructions, and release it on the thread
	// that locked it.
	class locked {
	public:
		locked(locked &&other) noexcept
			: percpu_(other.percpu_), block_(std::exchange(other.block_, nullptr))
		{
		}

		locked &operator=(locked &&other) noexcept
		{
			std::swap(percpu_, other.percpu_);
			std::swap(block_, other.block_);
			return *this;
		}

		locked(const locked &) = delete;
		locked &operator=(const locked &) = delete;

		~locked()
		{
			if (block_ != nullptr)
				static_cast<void>(uw_percpu_unlock(percpu_, block_));
		}

		T &operator*() const noexcept
		{
			return *static_cast<T *>(block_);
		}

		T *operator->() const noexcept
		{
			return static_cast<T *>(block_);
		}

		int cpu() const
		{
			return checked(uw_percpu_cpu_of(percpu_, block_));
		}

	private:
		friend class percpu;

		locked(uw_percpu *of, void *block) noexcept : percpu_(of), block_(block)
		{
		}

		uw_percpu *percpu_;
		void *block_;
	};

	percpu() : percpu_(uw_percpu_create(sizeof(T)))
	{
		if (percpu_ == nullptr)
			throw error(errno);
	}

	percpu(percpu &&other) noexcept : percpu_(std::exchange(other.percpu_, nullptr))
	{
	}

	percpu &operator=(percpu &&other) noexcept
	{
		std::swap(percpu_, other.percpu_);
		return *this;
	}

	percpu(const percpu &) = delete;
	percpu &operator=(const percpu &) = delete;

	~percpu()
	{
		if (percpu_ != nullptr)
			static_cast<void>(uw_percpu_destroy(percpu_));
	}

	// The number of CPUs that have a value. They are numbered from 0.
	int cpus() const
	{
		return checked(uw_percpu_cpus(percpu_));
	}

	// Locks the value of the caller's CPU, which the caller may leave afterwards; or that of
	// `cpu`.
	locked lock()
	{
		return of(uw_percpu_lock_local(percpu_));
	}

	locked lock(int cpu)
	{
		return of(uw_percpu_lock(percpu_, cpu));
	}

	// Returns nothing if the lock is held.
	std::optional<locked> try_lock()
	{
		return if_free(uw_percpu_trylock_local(percpu_));
	}

	std::optional<locked> try_lock(int cpu)
	{
		return if_free(uw_percpu_trylock(percpu_, cpu));
	}

	// Calls `function(cpu, value)` for each CPU, with the value locked, possibly for several
	// CPUs at the same time and on other threads. Afterwards it rethrows the first exception
	// that left one of the calls.
	template <typename F>
	void for_each(F function)
	{
		visits<F> mine(function);

		checked(uw_percpu_for_each(percpu_, visits<F>::visit, &mine));
		mine.rethrow();
	}

	// The same, for one CPU.
	template <typename F>
	void with(int cpu, F function)
	{
		visits<F> mine(function);

		checked(uw_percpu_with(percpu_, cpu, visits<F>::visit, &mine));
		mine.rethrow();
	}

private:
	template <typename F>
	struct visits {
		explicit visits(F &f) : function(f)
		{
		}

		static void visit(int cpu, void *block, void *arg) noexcept
		{
			visits &mine = *static_cast<visits *>(arg);

			try {
				mine.function(cpu, *static_cast<T *>(block));
			} catch (...) {
				if (!mine.has_failed.test_and_set())
					mine.failure = std::current_exception();
			}
		}

		void rethrow()
		{
			if (failure)
				std::rethrow_exception(failure);
		}

		F &function;
		std::atomic_flag has_failed = ATOMIC_FLAG_INIT;
		std::exception_ptr failure{};
	};

	locked of(void *block)
	{
		if (block == nullptr)
			throw error(errno);
		return locked(percpu_, block);
	}

	std::optional<locked> if_free(void *block)
	{
		if (block == nullptr && errno == EBUSY)
			return std::nullopt;
		return of(block);
	}

	uw_percpu *percpu_;
};

// A counter to which every CPU adds in its own part.
class percpu_counter {
public:
	percpu_counter() : counter_(uw_percpu_counter_create())
	{
		if (counter_ == nullptr)
			throw error(errno);
	}

	percpu_counter(percpu_counter &&other) noexcept : counter_(std::exchange(other.counter_, nullptr))
	{
	}

	percpu_counter &operator=(percpu_counter &&other) noexcept
	{
		std::swap(counter_, other.counter_);
		return *this;
	}

	percpu_counter(const percpu_counter &) = delete;
	percpu_counter &operator=(const percpu_counter &) = delete;

	~percpu_counter()
	{
		if (counter_ != nullptr)
			static_cast<void>(uw_percpu_counter_destroy(counter_));
	}

	void add(std::int64_t number)
	{
		uw_percpu_counter_add(counter_, number);
	}

	// The sum includes every addition before the call, and possibly some during the call.
	std::int64_t sum() const
	{
		return uw_percpu_counter_sum(counter_);
	}

private:
	uw_percpu_counter *counter_;
};

// A function for one CPU's data. In mode 0 it is called on that CPU. In modes 1 and 2 enqueue()
// calls it, possibly in several threads at once. Its argument is that CPU; it locks that CPU's data
// itself. Waits other than flush(), and cancel() and is_pending(), see calls in mode 0 only.
class percpu_work : public basic_work<uw_percpu_work> {
public:
	percpu_work(int cpu, std::function<void(int cpu)> function)
		: basic_work([cpu, call = std::move(function)] { call(cpu); })
	{
		uw_percpu_work_init(item(), run, cpu);
	}

	~percpu_work()
	{
		static_cast<void>(uw_work_disable_sync(get()));
		static_cast<void>(uw_percpu_flush(item()));
	}

	// Returns false if the item was already pending. In mode 0 it runs on the queue `on`.
	bool enqueue(const queue &on)
	{
		return checked(uw_percpu_queue_on(on.get(), item()->cpu, item())) > 0;
	}

	// Waits until the function has returned for every earlier enqueue(). Returns false if there
	// was none.
	bool flush()
	{
		return checked(uw_percpu_flush(item())) > 0;
	}

	// Whether a function for that CPU's data, called by this thread now, would run on another
	// CPU. A hint.
	static bool is_remote(int cpu) noexcept
	{
		return uw_percpu_is_remote(cpu);
	}
};

// Memory for objects of one type, with a magazine of free objects for each CPU. An object may be
// freed on any CPU.
template <typename T>
class percpu_cache {
public:
	// Destroys an object and frees its memory.
	class deleter {
	public:
		deleter() noexcept = default;

		void operator()(T *object) const noexcept
		{
			object->~T();
			uw_percpu_cache_free(cache_, object);
		}

	private:
		friend class percpu_cache;

		explicit deleter(uw_percpu_cache *of) noexcept : cache_(of)
		{
		}

		uw_percpu_cache *cache_ = nullptr;
	};

	using pointer = std::unique_ptr<T, deleter>;

	// The name appears in messages.
	explicit percpu_cache(const char *name) : cache_(uw_percpu_cache_create(name, sizeof(T), alignof(T)))
	{
		if (cache_ == nullptr)
			throw error(errno);
	}

	percpu_cache(percpu_cache &&other) noexcept : cache_(std::exchange(other.cache_, nullptr))
	{
	}

	percpu_cache &operator=(percpu_cache &&other) noexcept
	{
		std::swap(cache_, other.cache_);
		return *this;
	}

	percpu_cache(const percpu_cache &) = delete;
	percpu_cache &operator=(const percpu_cache &) = delete;

	~percpu_cache()
	{
		// While objects are allocated the cache cannot be destroyed: it stays, and the
		// objects stay valid.
		if (cache_ != nullptr)
			static_cast<void>(uw_percpu_cache_destroy(cache_));
	}

	// An object that its pointer destroys.
	template <typename... Args>
	pointer make(Args &&...args)
	{
		std::unique_ptr<void, raw_deleter> memory(allocate(), raw_deleter{ cache_ });
		T *object = ::new (memory.get()) T(std::forward<Args>(args)...);

		static_cast<void>(memory.release());
		return pointer(object, deleter(cache_));
	}

	// Allocates uninitialised memory for an object, and frees it. NULL is allowed there.
	void *allocate()
	{
		void *memory = uw_percpu_cache_alloc(cache_);

		if (memory == nullptr)
			throw error(errno);
		return memory;
	}

	void deallocate(void *memory) noexcept
	{
		uw_percpu_cache_free(cache_, memory);
	}

	// Empties the magazines of all CPUs. Returns how many objects they had.
	std::int64_t flush_all()
	{
		return checked(uw_percpu_cache_flush_all(cache_));
	}

	// The same, then returns memory to the system. Returns the number of bytes.
	std::int64_t shrink()
	{
		return checked(uw_percpu_cache_shrink(cache_));
	}

	struct uw_percpu_cache_stats stats() const
	{
		struct uw_percpu_cache_stats now{};

		checked(::uw_percpu_cache_stats(cache_, &now));
		return now;
	}

private:
	struct raw_deleter {
		void operator()(void *memory) const noexcept
		{
			uw_percpu_cache_free(of, memory);
		}

		uw_percpu_cache *of;
	};

	uw_percpu_cache *cache_;
};

// Pointers that are collected per CPU and passed to a function, at most `capacity` at a time. The
// function is called by the thread that adds the last one, by drain_all(), and by the destructor. A
// pointer belongs to the caller until it was added, and then to the function, which several threads
// may call at once. An exception that leaves the function ends the process.
template <typename T>
class percpu_batch {
public:
	// The pointers of one call, valid while the function runs.
	class items {
	public:
		class iterator {
		public:
			using iterator_category = std::input_iterator_tag;
			using value_type = T *;
			using difference_type = std::ptrdiff_t;
			using pointer = void;
			using reference = T *;

			T *operator*() const noexcept
			{
				return static_cast<T *>(*at_);
			}

			iterator &operator++() noexcept
			{
				++at_;
				return *this;
			}

			iterator operator++(int) noexcept
			{
				return iterator(at_++);
			}

			bool operator==(const iterator &other) const noexcept
			{
				return at_ == other.at_;
			}

			bool operator!=(const iterator &other) const noexcept
			{
				return at_ != other.at_;
			}

		private:
			friend class items;

			explicit iterator(void *const *at) noexcept : at_(at)
			{
			}

			void *const *at_;
		};

		iterator begin() const noexcept
		{
			return iterator(first_);
		}

		iterator end() const noexcept
		{
			return iterator(first_ + size_);
		}

		T *operator[](std::size_t index) const noexcept
		{
			return static_cast<T *>(first_[index]);
		}

		std::size_t size() const noexcept
		{
			return size_;
		}

	private:
		friend class percpu_batch;

		items(void *const *first, std::size_t size) noexcept : first_(first), size_(size)
		{
		}

		void *const *first_;
		std::size_t size_;
	};

	using sink = std::function<void(items)>;

	percpu_batch(unsigned capacity, sink function)
		: sink_(std::make_unique<sink>(std::move(function))),
		  batch_(uw_percpu_batch_create(capacity, call, sink_.get()))
	{
		if (batch_ == nullptr)
			throw error(errno);
	}

	percpu_batch(percpu_batch &&other) noexcept
		: sink_(std::move(other.sink_)), batch_(std::exchange(other.batch_, nullptr))
	{
	}

	percpu_batch &operator=(percpu_batch &&other) noexcept
	{
		std::swap(sink_, other.sink_);
		std::swap(batch_, other.batch_);
		return *this;
	}

	percpu_batch(const percpu_batch &) = delete;
	percpu_batch &operator=(const percpu_batch &) = delete;

	~percpu_batch()
	{
		// Inside its own function the batch cannot be destroyed: it stays.
		if (batch_ != nullptr && uw_percpu_batch_destroy(batch_) < 0)
			static_cast<void>(sink_.release());
	}

	void add(T *item)
	{
		checked(uw_percpu_batch_add(batch_, bare(item)));
	}

	// Passes on the pointers of all CPUs, and returns their number. The function must not call
	// it.
	std::int64_t drain_all()
	{
		return checked(uw_percpu_batch_drain_all(batch_));
	}

private:
	// The pointer as C stores it. A const qualifier is restored when the pointer is passed on.
	static void *bare(T *item) noexcept
	{
		return const_cast<std::remove_cv_t<T> *>(item);
	}

	static void call(void *const *first, std::size_t count, void *arg) noexcept
	{
		(*static_cast<sink *>(arg))(items(first, count));
	}

	std::unique_ptr<sink> sink_;
	uw_percpu_batch *batch_;
};

// A thread to which other threads add functions, and which calls them itself, at the points below.
// The object does not keep the thread alive.
class task {
public:
	// The calling thread.
	static task current()
	{
		return task(uw_task_current());
	}

	task(const task &other) : task(uw_task_get(other.task_))
	{
	}

	task(task &&other) noexcept : task_(std::exchange(other.task_, nullptr))
	{
	}

	task &operator=(task other) noexcept
	{
		std::swap(task_, other.task_);
		return *this;
	}

	~task()
	{
		uw_task_put(task_);
	}

	// Makes the thread call a function, in the order of adding, at the latest when the thread
	// ends. Returns false if the thread has ended; the function is not called then. An
	// exception that leaves the function ends the process.
	template <typename F>
	bool post(F function, uw_notify notify = UW_NOTIFY_SIGNAL)
	{
		auto mine = std::make_unique<posted<F>>(std::move(function));
		int answer = uw_task_work_add(task_, mine.get(), notify);

		if (answer == -ESRCH)
			return false;
		checked(answer);
		static_cast<void>(mine.release());
		return true;
	}

	// For the calling thread; both return the number of calls. run() calls functions until none
	// is left. safe_point() calls those in the list if the thread was notified.
	static int run()
	{
		return checked(uw_task_run());
	}

	static int safe_point()
	{
		return checked(uw_task_safe_point());
	}

	// Sleeps until there are functions to call, and calls them.
	static int park()
	{
		return checked(uw_task_park(-1));
	}

	static int park_for(std::chrono::nanoseconds limit)
	{
		return checked(uw_task_park(limit.count() > 0 ? limit.count() : 0));
	}

	const uw_task *get() const noexcept
	{
		return task_;
	}

private:
	template <typename F>
	struct posted : uw_task_work {
		explicit posted(F f) : uw_task_work{}, function(std::move(f))
		{
			uw_task_work_init(this, call);
		}

		static void call(uw_task_work *item) noexcept
		{
			std::unique_ptr<posted> mine(static_cast<posted *>(item));

			mine->function();
		}

		F function;
	};

	explicit task(uw_task *known) : task_(known)
	{
		if (task_ == nullptr)
			throw error(errno);
	}

	uw_task *task_;
};

// Hooks that give each thread which runs items a State. `start` makes it; without `start` it is
// State(). `stop` gets it back; without `stop` it is destroyed then. Both run on that thread. They may
// queue items and must not wait for items. An exception that leaves one of them ends the process.
//
// `start` runs before a thread's first item, or with when::asked in state() and before a thread's first
// item of a queue that add_to() was called for. `stop` runs when the thread ends, or after the removal.
//
// The destructor removes the hooks and does not wait: a thread that has a state calls `stop` later. So
// the functions stay in memory for the life of the process, and what they refer to must live until
// then; remove_sync() says when that is.
template <typename State>
class thread_hooks {
public:
	using start_function = std::function<std::unique_ptr<State>(const uw_thread &)>;
	using stop_function = std::function<void(const uw_thread &, std::unique_ptr<State>)>;

	// When a thread calls `start`.
	enum class when { first_item, asked };

	explicit thread_hooks(start_function start = {}, stop_function stop = {}, when called = when::first_item)
	{
		auto mine = std::make_unique<functions>(functions{ std::move(start), std::move(stop) });
		auto *add = called == when::asked ? uw_thread_hooks_add_lazy : uw_thread_hooks_add;

		hooks_ = add(begin, end, mine.get());
		if (hooks_ == nullptr)
			throw error(errno);
		static_cast<void>(mine.release());
	}

	thread_hooks(thread_hooks &&other) noexcept : hooks_(std::exchange(other.hooks_, nullptr))
	{
	}

	thread_hooks &operator=(thread_hooks &&other) noexcept
	{
		std::swap(hooks_, other.hooks_);
		return *this;
	}

	thread_hooks(const thread_hooks &) = delete;
	thread_hooks &operator=(const thread_hooks &) = delete;

	~thread_hooks()
	{
		if (hooks_ != nullptr)
			static_cast<void>(uw_thread_hooks_remove(hooks_));
	}

	// The calling thread's state, made if the thread is in an item and has none; else NULL.
	State *state() const noexcept
	{
		return static_cast<State *>(uw_thread_state(hooks_));
	}

	// Items that are queued there from now on run on threads that have called `start`.
	void add_to(const queue &queue)
	{
		static_cast<void>(checked(uw_queue_add_thread_hooks(queue.get(), hooks_)));
	}

	// Removes the hooks, and waits until the library's threads have called `stop`. Returns how many
	// other threads have not.
	int remove_sync()
	{
		return checked(uw_thread_hooks_remove_sync(hooks_));
	}

	// Always 0: no thread is too early.
	int missed() const
	{
		return checked(uw_thread_hooks_missed(hooks_));
	}

private:
	struct functions {
		start_function start;
		stop_function stop;
	};

	static void *begin(const uw_thread *thread, void *arg) noexcept
	{
		const start_function &start = static_cast<functions *>(arg)->start;

		if constexpr (std::is_default_constructible_v<State>) {
			if (!start)
				return new State();
		}
		return start(*thread).release();
	}

	static void end(const uw_thread *thread, void *state, void *arg) noexcept
	{
		const stop_function &stop = static_cast<functions *>(arg)->stop;
		std::unique_ptr<State> mine(static_cast<State *>(state));

		if (stop)
			stop(*thread, std::move(mine));
	}

	struct uw_thread_hooks *hooks_ = nullptr;
};

} // namespace uwork

#endif
