/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Sequence counters: a reader detects that a writer has interfered, and reads again. The values
 * that it read meanwhile may be torn, so the data needs READ_ONCE() and WRITE_ONCE().
 */
#ifndef UWORK_KERNEL_LINUX_SEQLOCK_H
#define UWORK_KERNEL_LINUX_SEQLOCK_H

#include <linux/compiler.h>
#include <linux/spinlock.h>

typedef struct seqcount {
	unsigned int sequence;
} seqcount_t;

#define SEQCNT_ZERO(name) { 0 }

static inline void seqcount_init(seqcount_t *s)
{
	s->sequence = 0;
}

/* Odd while a writer is active. */
static inline unsigned int uw_seqcount_read(const seqcount_t *s)
{
	return smp_load_acquire(&s->sequence);
}

static inline unsigned int uw_seqcount_begin(const seqcount_t *s)
{
	unsigned int sequence;

	while ((sequence = uw_seqcount_read(s)) & 1)
		cpu_relax();
	return sequence;
}

/*
 * Whether the reader must read again. The fence keeps the data's loads before the load of the
 * counter.
 */
static inline int uw_seqcount_retry(const seqcount_t *s, unsigned int start)
{
	smp_rmb();
	return READ_ONCE(s->sequence) != start;
}

/* The caller ensures that there is one writer at a time. */
static inline void uw_seqcount_write_begin(seqcount_t *s)
{
	WRITE_ONCE(s->sequence, s->sequence + 1);
	/* The counter is odd before any data is written. */
	smp_wmb();
}

static inline void uw_seqcount_write_end(seqcount_t *s)
{
	smp_store_release(&s->sequence, s->sequence + 1);
}

/* Readers that began before this must read again. */
static inline void uw_seqcount_invalidate(seqcount_t *s)
{
	smp_wmb();
	WRITE_ONCE(s->sequence, s->sequence + 2);
}

/* A counter whose writers hold a lock. The lock is not recorded. */
#define UW_SEQCOUNT(kind) \
	typedef struct seqcount_##kind { \
		seqcount_t seqcount; \
	} seqcount_##kind##_t;
UW_SEQCOUNT(raw_spinlock)
UW_SEQCOUNT(spinlock)
UW_SEQCOUNT(rwlock)
UW_SEQCOUNT(mutex)
#define SEQCNT_RAW_SPINLOCK_ZERO(name, lock) { SEQCNT_ZERO((name).seqcount) }
#define SEQCNT_SPINLOCK_ZERO(name, lock) { SEQCNT_ZERO((name).seqcount) }
#define SEQCNT_RWLOCK_ZERO(name, lock) { SEQCNT_ZERO((name).seqcount) }
#define SEQCNT_MUTEX_ZERO(name, lock) { SEQCNT_ZERO((name).seqcount) }
#define seqcount_raw_spinlock_init(s, lock) ((void)(lock), seqcount_init(&(s)->seqcount))
#define seqcount_spinlock_init(s, lock) ((void)(lock), seqcount_init(&(s)->seqcount))
#define seqcount_rwlock_init(s, lock) ((void)(lock), seqcount_init(&(s)->seqcount))
#define seqcount_mutex_init(s, lock) ((void)(lock), seqcount_init(&(s)->seqcount))

/* Each kind of counter begins with the plain one. */
#define UW_SEQCOUNT_OF(s) ((seqcount_t *)(uintptr_t)(s))
#define raw_read_seqcount(s) uw_seqcount_read(UW_SEQCOUNT_OF(s))
#define read_seqcount_begin(s) uw_seqcount_begin(UW_SEQCOUNT_OF(s))
#define raw_read_seqcount_begin(s) read_seqcount_begin(s)
#define __read_seqcount_begin(s) read_seqcount_begin(s)
#define read_seqcount_retry(s, start) uw_seqcount_retry(UW_SEQCOUNT_OF(s), (start))
#define __read_seqcount_retry(s, start) read_seqcount_retry(s, start)
#define write_seqcount_begin(s) uw_seqcount_write_begin(UW_SEQCOUNT_OF(s))
#define write_seqcount_end(s) uw_seqcount_write_end(UW_SEQCOUNT_OF(s))
#define write_seqcount_begin_nested(s, subclass) write_seqcount_begin(s)
#define raw_write_seqcount_begin(s) write_seqcount_begin(s)
#define raw_write_seqcount_end(s) write_seqcount_end(s)
#define write_seqcount_invalidate(s) uw_seqcount_invalidate(UW_SEQCOUNT_OF(s))

typedef struct {
	seqcount_t seqcount;
	spinlock_t lock;
} seqlock_t;

#define __SEQLOCK_UNLOCKED(name) { SEQCNT_ZERO((name).seqcount), __SPIN_LOCK_UNLOCKED((name).lock) }
#define DEFINE_SEQLOCK(name) seqlock_t name = __SEQLOCK_UNLOCKED(name)

static inline void seqlock_init(seqlock_t *sl)
{
	seqcount_init(&sl->seqcount);
	spin_lock_init(&sl->lock);
}

static inline unsigned int read_seqbegin(const seqlock_t *sl)
{
	return read_seqcount_begin(&sl->seqcount);
}

static inline unsigned int read_seqretry(const seqlock_t *sl, unsigned int start)
{
	return (unsigned int)read_seqcount_retry(&sl->seqcount, start);
}

static inline void write_seqlock(seqlock_t *sl)
{
	spin_lock(&sl->lock);
	write_seqcount_begin(&sl->seqcount);
}

static inline void write_sequnlock(seqlock_t *sl)
{
	write_seqcount_end(&sl->seqcount);
	spin_unlock(&sl->lock);
}

#define write_seqlock_irq(sl) write_seqlock(sl)
#define write_sequnlock_irq(sl) write_sequnlock(sl)
#define write_seqlock_bh(sl) write_seqlock(sl)
#define write_sequnlock_bh(sl) write_sequnlock(sl)
#define write_seqlock_irqsave(sl, flags) ((flags) = 0, write_seqlock(sl))
#define write_sequnlock_irqrestore(sl, flags) ((void)(flags), write_sequnlock(sl))
#define read_seqlock_excl(sl) spin_lock(&(sl)->lock)
#define read_sequnlock_excl(sl) spin_unlock(&(sl)->lock)

/*
 * A reader that becomes exclusive if it must read again: with an even number it only looks, with an
 * odd one it holds the lock.
 *
 *	int seq = 0;
 *	do {
 *		read_seqbegin_or_lock(&lock, &seq);
 *	} while (need_seqretry(&lock, seq) && (seq = 1));
 *	done_seqretry(&lock, seq);
 */
static inline void read_seqbegin_or_lock(seqlock_t *sl, int *seq)
{
	if (*seq & 1)
		read_seqlock_excl(sl);
	else
		*seq = (int)read_seqbegin(sl);
}

static inline int need_seqretry(seqlock_t *sl, int seq)
{
	return !(seq & 1) && read_seqretry(sl, (unsigned int)seq);
}

static inline void done_seqretry(seqlock_t *sl, int seq)
{
	if (seq & 1)
		read_sequnlock_excl(sl);
}

#define read_seqlock_excl_irq(sl) read_seqlock_excl(sl)
#define read_sequnlock_excl_irq(sl) read_sequnlock_excl(sl)
#define read_seqlock_excl_bh(sl) read_seqlock_excl(sl)
#define read_sequnlock_excl_bh(sl) read_sequnlock_excl(sl)
#define read_seqlock_excl_irqsave(sl, flags) ((flags) = 0, read_seqlock_excl(sl))
#define read_sequnlock_excl_irqrestore(sl, flags) ((void)(flags), read_sequnlock_excl(sl))

#endif
