//! The store by default: one file, by redb. A batch is one transaction, synced before it is acknowledged.

use super::{Batch, Store, StoreError};
use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

const TABLE: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("henge");

/// A file.
#[derive(Debug)]
pub struct RedbStore {
    database: Database,
}

fn wrong(e: impl std::fmt::Display) -> StoreError {
    StoreError(e.to_string())
}

impl RedbStore {
    /// Opens it, or makes it.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let named = |e: &dyn std::fmt::Display| StoreError(format!("{}: {e}", path.display()));
        // Hashes of tokens are in it.
        let mut options = std::fs::OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(false).mode(0o600).open(path);
        let private = std::fs::Permissions::from_mode(0o600);
        file.and_then(|file| file.set_permissions(private)).map_err(|e| named(&e))?;
        let database = Database::create(path).map_err(|e| named(&e))?;
        let transaction = database.begin_write().map_err(|e| named(&e))?;
        transaction.open_table(TABLE).map_err(|e| named(&e))?;
        transaction.commit().map_err(|e| named(&e))?;
        Ok(RedbStore { database })
    }
}

impl Store for RedbStore {
    fn load(&mut self) -> Result<Vec<(String, Vec<u8>)>, StoreError> {
        let transaction = self.database.begin_read().map_err(wrong)?;
        let table = transaction.open_table(TABLE).map_err(wrong)?;
        let mut values = Vec::new();
        for entry in table.iter().map_err(wrong)? {
            let (key, value) = entry.map_err(wrong)?;
            values.push((key.value().to_owned(), value.value().to_vec()));
        }
        Ok(values)
    }

    fn commit(&mut self, batch: &Batch) -> Result<(), StoreError> {
        let transaction = self.database.begin_write().map_err(wrong)?;
        {
            let mut table = transaction.open_table(TABLE).map_err(wrong)?;
            for (key, value) in &batch.changes {
                match value {
                    Some(value) => table.insert(key.as_str(), value.as_slice()).map_err(wrong)?,
                    None => table.remove(key.as_str()).map_err(wrong)?,
                };
            }
        }
        transaction.commit().map_err(wrong)
    }
}
